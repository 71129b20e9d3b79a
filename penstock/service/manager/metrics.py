"""What the manager measures of itself, in the text form of Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from penstock.service.manager.answers import status
from penstock.service.manager.service import Service

MEDIA_TYPE = "text/plain"


def merged(texts: Iterable[str]) -> str:
    """Several texts as one: each family of series is described once, and its lines are together.

    >>> print(merged(["# HELP a A.\\na{p=\\"1\\"} 1\\n", "# HELP a A.\\na{p=\\"2\\"} 2\\n"]), end="")
    # HELP a A.
    a{p="1"} 1
    a{p="2"} 2
    """
    families: dict[str, dict[str, None]] = {}
    for text in texts:
        for line in text.splitlines():
            described = line.startswith("#")
            family = line.split()[2] if described else re.split(r"[{ ]", line, maxsplit=1)[0]
            families.setdefault(family, {})[line] = None
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


def manager_metrics(service: Service) -> str:
    """How many pipelines there are in each status, and what the spares take."""
    rows = service.pipelines.all()
    spares = service.spares.seen()
    lines = [
        "# HELP penstock_pipelines Pipelines in each status.",
        "# TYPE penstock_pipelines gauge",
        *(
            f'penstock_pipelines{{status="{name}"}} {count}'
            for name, count in sorted(Counter(status(row) for row in rows).items())
        ),
        "# HELP penstock_spare_runners Blank runners that are up.",
        "# TYPE penstock_spare_runners gauge",
        f"penstock_spare_runners {len(spares)}",
        "# HELP penstock_spare_runners_warm Those of them whose Spark is up.",
        "# TYPE penstock_spare_runners_warm gauge",
        f"penstock_spare_runners_warm {sum(spare.is_warm for spare in spares)}",
        "# HELP penstock_spare_runners_rss_bytes Memory of the blank runners.",
        "# TYPE penstock_spare_runners_rss_bytes gauge",
        f"penstock_spare_runners_rss_bytes {sum(spare.rss_bytes for spare in spares)}",
        "# HELP penstock_manager_healthy Whether the manager looks at its pipelines as it should.",
        "# TYPE penstock_manager_healthy gauge",
        f"penstock_manager_healthy {int(service.supervisor.is_healthy)}",
    ]
    return "\n".join(lines) + "\n"
