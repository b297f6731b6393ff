# SPDX-License-Identifier: GPL-2.0
#
# A library that is a crate of the repository: "all" builds it, "there" makes sure that it exists
# for an install. The including Makefile sets before
#
#   name      := the name of the file, without .so
#   crates    := the packages for cargo, such as "-p sisci"
#   try_again := the target of the repository's Makefile that led here
#
# and gets $(library). LIBRARY=... names a library that is built already, without a cargo.

repository := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/../..)
OUTPUT ?= $(repository)/target
INSTALL ?= install
without_cargo := , or name a built library with LIBRARY=

ifeq ($(LIBRARY),)
library := $(OUTPUT)/release/$(name).so
all: build
else
library := $(LIBRARY)
all:
endif

build: cargo
	$(CARGO) build --locked --release --manifest-path $(repository)/Cargo.toml \
		--target-dir $(OUTPUT) $(crates)

there: all
	@[ -e $(library) ] || { \
		echo 'error: there is no $(library): name the built library with LIBRARY=, or leave that out to build it' >&2; \
		exit 2; }

include $(repository)/tools/cargo.mk

.PHONY: all build there
