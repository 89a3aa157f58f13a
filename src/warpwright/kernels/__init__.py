"""The kernel library: one file per kernel, with its PTX, its plain torch reference and its variants in it."""
