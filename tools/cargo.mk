# SPDX-License-Identifier: GPL-2.0
#
# "cargo": makes sure that there is one that runs, on a machine of somebody's. Who includes
# this says before
#
#   without_cargo := what else can be done, behind ": install Rust 1.85 or newer"
#   try_again     := the target of the repository's Makefile that led here

CARGO ?= cargo

cargo:
	@command -v $(firstword $(CARGO)) >/dev/null || { \
		echo 'error: there is no $(firstword $(CARGO)) here: install Rust 1.85 or newer$(without_cargo)' >&2; \
		exit 2; }
	@$(CARGO) --version >/dev/null 2>&1 || { \
		echo 'error: $(CARGO) does not run; if it is that of rustup: "rustup toolchain install", or RUSTUP_TOOLCHAIN=stable make $(try_again)' >&2; \
		exit 2; }

.PHONY: cargo
