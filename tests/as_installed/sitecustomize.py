"""Hides modules from every Python that starts with this folder in its path, as if they were not installed."""

import os
import sys

sys.modules.update(dict.fromkeys(os.environ.get("NOT_INSTALLED", "").split()))  # type: ignore[arg-type]
