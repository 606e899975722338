"""Code blocks of all other pages run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("other_pages")
