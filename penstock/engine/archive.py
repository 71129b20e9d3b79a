"""An archive of the classes that Spark loads (class data sharing): with it the JVM starts much faster.

It is recorded once, when a JVM ends. A JVM that is given an archive of another Java or of other jars notices,
and starts as if it had none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

SWITCHED_OFF = "PENSTOCK_NO_CDS"
"""The variable that, when set, keeps archives from being made and used."""

# Not `extraJavaOptions`, which users set, and which would replace ours or be replaced.
_OPTIONS = "spark.driver.defaultJavaOptions"
_QUIET = "-Xlog:cds*=off"


def archive_path() -> Path | None:
    """Where the archive for this Java and this Spark is or would be; None if there can be none."""
    if os.environ.get(SWITCHED_OFF):
        return None
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        return None
    try:
        about = [_identity(Path(java)), _identity(Path(_find_spark_home(), "jars"))]
    except OSError:
        return None
    key = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "penstock", f"spark-{pyspark.__version__}-{key}.jsa")


def _identity(path: Path) -> str:
    """Another version at the same place has another time; to ask Java for its version would take a start."""
    path = path.resolve()
    return f"{path} {path.stat().st_mtime_ns}"


def using_archive() -> Mapping[str, str]:
    """Spark settings that use the archive, if there is one."""
    path = archive_path()
    if path is None or not path.is_file():
        return {}
    return {_OPTIONS: f'"-XX:SharedArchiveFile={path}" -Xshare:auto {_QUIET}'}


def recording(path: Path) -> Mapping[str, str]:
    """Spark settings that write an archive when the JVM ends."""
    return {_OPTIONS: f'"-XX:ArchiveClassesAtExit={path}" {_QUIET}'}
