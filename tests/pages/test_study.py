"""Code blocks of pages on the study and its data run."""

from page_blocks import blocks_run

test_blocks_run = blocks_run("study")
