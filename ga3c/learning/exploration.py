"""A ladder of exploration: a share for each lane, and which lanes are the greediest."""

import numpy as np


def ladder(
    base: float, exponent: float, agents: int, envs_per_agent: int, rungs: int | None = None
) -> np.ndarray:
    """The epsilon of each lane, constant over time (Horgan et al. 2018, Ape-X).

        epsilon_i = base^(1 + exponent i / (N - 1)),    i = 0 .. N - 1

    The place i of a lane depends on its environment first and on its agent second: each agent then
    has lanes over the whole ladder, and one that is lost leaves no gap. A single lane has `base`.

    Args:
        agents, envs_per_agent: the most that there may be; N is their product.
        rungs: number of different epsilons, the ladder of so many lanes; None: N.

    Returns: float32 [N], by lane.
    """
    count = agents * envs_per_agent
    lanes = np.arange(count)
    places = lanes % envs_per_agent * agents + lanes // envs_per_agent
    rungs = min(rungs or count, count)
    places = places * rungs // count
    return (base ** (1 + exponent * places / max(rungs - 1, 1))).astype(np.float32)


def greediest_third(epsilons: np.ndarray) -> float:
    """The largest epsilon within the third of the lanes that explore least, rounded up.

    The score of a run with a ladder is that of this third: the other lanes explore so much that
    their scores say little about what is learned. Args: epsilons, float32 [lanes].
    """
    return float(np.sort(epsilons)[-(-len(epsilons) // 3) - 1])
