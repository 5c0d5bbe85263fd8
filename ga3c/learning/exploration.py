"""The exploration ladder: an epsilon for each lane, and which lanes are the greediest."""

import numpy as np


def ladder(
    base: float, exponent: float, agents: int, envs_per_agent: int, rungs: int | None = None
) -> np.ndarray:
    """The epsilon of each lane, constant over time (Horgan et al. 2018, Ape-X).

        epsilon_i = base^(1 + exponent i / (N - 1)),    i = 0 .. N - 1

    A lane's place i depends on its environment first and its agent second, so each agent's lanes
    span the whole ladder, and a lost agent leaves no gap. A single lane has `base`.

    Args:
        agents, envs_per_agent: the maximum numbers; N is their product.
        rungs: number of distinct epsilons, those of a ladder for that many lanes; None: N.

    Returns: float32 [N], by lane.
    """
    count = agents * envs_per_agent
    lanes = np.arange(count)
    places = lanes % envs_per_agent * agents + lanes // envs_per_agent
    rungs = min(rungs or count, count)
    places = places * rungs // count
    return (base ** (1 + exponent * places / max(rungs - 1, 1))).astype(np.float32)


def greediest_third(epsilons: np.ndarray) -> float:
    """The largest epsilon among the third (rounded up) of the lanes that explore least.

    A run with a ladder is scored on this third: the other lanes explore so much that their scores
    say little about what has been learned. Args: epsilons, float32 [lanes].
    """
    return float(np.sort(epsilons)[-(-len(epsilons) // 3) - 1])
