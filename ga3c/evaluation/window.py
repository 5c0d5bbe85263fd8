"""Shows pictures in a window, at the game's own speed."""

import time

import numpy as np
from PIL import Image

from ga3c.settings.checks import WrongInput


class Window:
    """A window that shows one picture after another until it is closed.

    Raises WrongInput if there is no display.
    """

    def __init__(self, title: str, per_second: float) -> None:
        try:
            import tkinter

            from PIL import ImageTk
        except ImportError as error:
            raise WrongInput(f"no window can be shown: {error}; leave out --window") from error
        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise WrongInput(f"no window can be shown: {error}; leave out --window") from error
        self._photo = ImageTk.PhotoImage
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._root.protocol("WM_DELETE_WINDOW", self._close)
        self._is_open = True
        self._every_s, self._next_s = 1 / per_second, time.monotonic()

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *failure: object) -> None:
        self._close()

    def append_data(self, picture: np.ndarray) -> None:
        """Show a picture, [h, w, 3] uint8. Raises KeyboardInterrupt if the window was closed."""
        if not self._is_open:
            raise KeyboardInterrupt
        self._shown = self._photo(Image.fromarray(picture), master=self._root)
        self._label.configure(image=self._shown)
        self._root.update()
        now_s = time.monotonic()
        self._next_s = max(self._next_s + self._every_s, now_s)
        time.sleep(self._next_s - now_s)

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._root.destroy()
