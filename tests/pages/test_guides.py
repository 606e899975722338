"""Code blocks of the how-to guides run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("guides")
