"""Sphinx configuration: Markdown by MyST, the look by Furo, reference pages from the code itself (`make docs`)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import ranktrial

project = "ranktrial"
author = "the ranktrial authors"
copyright = f"{author}, MIT licence"
version = release = ranktrial.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "site_pages"]
exclude_patterns = ["_build"]

myst_heading_anchors = 4  # links such as http.md#events, as on GitHub
myst_enable_extensions = ["attrs_block"]

autodoc_default_options = {"members": True}
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {name: name for name in ("FloatArray", "IntArray", "BoolArray", "ArrayLike", "Seed")}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"ranktrial {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = True
html_show_sourcelink = False
