"""Which of the requests that have come a prediction answers, and which must wait."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ga3c.service.predictor import Predictor

LANES = 4


@pytest.mark.parametrize(("synchronized", "sizes"), [(True, [0, 4]), (False, [3, 1])])
def test_room_that_comes_meanwhile_splits_no_prediction_that_is_for_all_environments(
    synchronized: bool, sizes: list[int]
) -> None:
    """A flush makes room just after the book has refused the first request.

    Otherwise the number of predictions, which seeds their noise, would depend on timing.
    """
    answers = iter([False])
    parts: dict[str, Any] = {
        **dict.fromkeys(Predictor.__dataclass_fields__),
        "book": SimpleNamespace(admit=lambda *_: next(answers, True)),
        "pacing": SimpleNamespace(admit=lambda *_: True),
        "requests": SimpleNamespace(max_batch=LANES, closed=False),
        "synchronized": synchronized,
    }
    predictor = Predictor(**parts)
    held: list[Any] = [SimpleNamespace(lanes=np.array([lane])) for lane in range(LANES)]
    for size in sizes:
        batch, held = predictor._with_room(held)
        assert len(batch) == size
    assert held == []
