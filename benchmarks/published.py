"""The published speeds that several studies are compared with."""

from ga3c.reports.published_figures import published_rows


def published_pps() -> dict[str, dict[str, float]]:
    """Predictions per second of A3C and GA3C, by network: GA3C's Table 2, 16 cores, a Titan X."""
    rows = [row for row in published_rows("ga3c_pps.csv") if row["system"] == "I"]
    return {
        row["network"].replace("large, stride ", "large-"): {
            name: float(row[name]) for name in ("a3c_pps", "ga3c_pps")
        }
        for row in rows
    }
