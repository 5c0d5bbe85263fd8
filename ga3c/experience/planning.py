"""How much memory experience takes: said, and refused, before any of it is allocated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ga3c import backend
from ga3c.experience.memory import DEVICE, HOST, free_bytes

USABLE = 0.95  # of what is free


class _Need(NamedTuple):
    """Bytes of one step, for all the steps of the rings, in one place."""

    place: str
    step_bytes: float
    free_bytes: int


@dataclass(frozen=True)
class Plan:
    """Steps of all rings, and what each of them takes."""

    steps: int
    step_bytes: float  # of the ring's columns
    ram_bytes: float  # of what is in RAM besides, for each step: a book, a checkpoint's copy
    on_device: bool

    def check(self, asked: str, most: Callable[[int], str]) -> None:
        """Raises ValueError if it does not fit.

        Args:
            asked: the settings that ask for so much, in words.
            most: says in words what could be asked for, where so many steps have room.
        """
        for need in self._needs():
            fits = int(need.free_bytes * USABLE / need.step_bytes)
            if self.steps > fits:
                raise ValueError(
                    f"{asked} take {self.steps * need.step_bytes / 1e9:.2f} GB > "
                    f"{need.free_bytes / 1e9:.2f} GB that are free in {need.place}: {most(fits)}"
                )

    def __str__(self) -> str:
        need = self._needs()[0]
        return (
            f"{self.steps * need.step_bytes / 1e9:.2f} GB in {need.place} "
            f"({need.free_bytes / 1e9:.1f} GB free)"
        )

    def _needs(self) -> list[_Need]:
        free_ram = free_bytes(HOST)
        if self.on_device and backend.has_gpu():
            ring = _Need("the GPU's memory", self.step_bytes, free_bytes(DEVICE))
            return [ring, *([_Need("RAM", self.ram_bytes, free_ram)] if self.ram_bytes else [])]
        return [_Need("RAM", self.step_bytes + self.ram_bytes, free_ram)]
