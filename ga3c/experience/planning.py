"""How much memory experience takes. A plan that does not fit is refused before allocation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ga3c import backend
from ga3c.experience.memory import DEVICE, HOST, free_bytes

USABLE = 0.95  # share of the free memory that experience may take


class _Need(NamedTuple):
    """The bytes that each step takes in one place, and the bytes that are free there."""

    place: str
    step_bytes: float
    free_bytes: int


@dataclass(frozen=True)
class Plan:
    """The number of steps in all rings, and the bytes that each step takes."""

    steps: int
    step_bytes: float  # for each step, the ring's columns
    ram_bytes: float  # for each step, what RAM holds besides: a book, a checkpoint's copy
    on_device: bool
    beside_bytes: float = 0.0  # what RAM holds of other things: processes, the network

    def check(self, asked: str, most: Callable[[int], str]) -> None:
        """Raises ValueError if the plan does not fit.

        Args:
            asked: the settings that ask for this many steps, in words.
            most: given how many steps fit, describes in words the largest possible setting.
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
        free_ram = max(int(free_bytes(HOST) - self.beside_bytes), 0)
        if self.on_device and backend.has_gpu():
            ring = _Need("the GPU's memory", self.step_bytes, free_bytes(DEVICE))
            return [ring, *([_Need("RAM", self.ram_bytes, free_ram)] if self.ram_bytes else [])]
        return [_Need("RAM", self.step_bytes + self.ram_bytes, free_ram)]
