# SPDX-License-Identifier: GPL-2.0
#
# All commands for a user; "make help" lists them. They compile in the pinned
# environment (scripts/environment). The exceptions build for the user's machine
# with the tools of that machine: "make modules" with KDIR=, "make lib" and
# "make tools_install".

KERNEL ?= stock
# Replaces the shell, which would not pass on a signal. With SCIF_WITH_PARENT a command ends
# when the make that waits for it has ended.
environment := exec scripts/environment run
export SCIF_WITH_PARENT := yes

ifdef KDIR
MO ?= build/module
module_build = exec scripts/build-module "$(KDIR)" "$(MO)"
else
module_build = $(environment) scripts/module "$(KERNEL)"
endif

help:
	@echo 'Two commands that need nothing but root on Debian 12 or 13:'
	@echo '  make demo                  boot two nodes and copy a real file from one to the other'
	@echo '                             (FILE=... for a file of your own)'
	@echo '  make test                  the tests for every change; ends with "N passed, N failed"'
	@echo '                             KERNEL=debug: on the kernel with KASAN, lockdep and the like'
	@echo '                             FILTER=...: only the lab tests whose name contains it'
	@echo '  make test-all              all tests, as before a release; takes some hours'
	@echo '  make soak HOURS=n          hours of mixed load with faults: build/soak/report.txt'
	@echo '  make conformance           the conformance suite, rule by rule, as TAP; KERNEL=debug, too'
	@echo '  make arm64                 the module and the library for arm64'
	@echo '  make conformance-arm64     the conformance suite for arm64, over loopback, in an emulated guest'
	@echo '  make bench                 SCIF beside TCP and the bare machine: build/bench/report.html'
	@echo '                             SHORT=y: in less than three minutes'
	@echo
	@echo 'The modules for a machine of yours:'
	@echo '  make modules KDIR=...      build scif.ko, and scif_net.ko, a network device for each peer,'
	@echo '                             against a prepared kernel tree >= 7.3: build/module/'
	@echo '  make modules_install KDIR=...'
	@echo '  make clean KDIR=...'
	@echo '                             for a kernel of Debian, whose header package has no rust/:'
	@echo '  make kernel-rust KDIR=...  make rust/ from the package linux-source (SOURCE=... if it is'
	@echo '                             not /usr/src/linux-source-*.tar.xz), in build/kernel/'
	@echo '  make ntb-modules KDIR=...  build the drivers for bridges, which that kernel lacks'
	@echo '  make ntb-modules_install KDIR=...'
	@echo
	@echo 'The drivers in a kernel tree of yours, Linux >= 7.3:'
	@echo '  make overlay KSRC=...      add drivers/misc/scif, drivers/net/scif, two headers, and five'
	@echo '                             lines'
	@echo
	@echo 'The library for a machine of yours, with its compiler:'
	@echo '  make lib                   libscif'
	@echo '  make lib_install           DESTDIR=, PREFIX= (/usr/local), LIBDIR=, ...; make lib_uninstall'
	@echo
	@echo 'The library libsisci for a machine of yours, with its cargo:'
	@echo '  make sisci_install         DESTDIR=, DISPREFIX= (/opt/DIS); make sisci_uninstall'
	@echo
	@echo 'The library libscif_ring for a machine of yours, with its cargo:'
	@echo '  make ring_install          DESTDIR=, PREFIX= (/usr/local), LIBDIR=, ...; make ring_uninstall'
	@echo
	@echo 'The tool scif for a machine of yours, with its cargo:'
	@echo '  make tools_install         scif; man pages and completions (bash, zsh, fish) of scif and lab'
	@echo '                             DESTDIR=, PREFIX= (/usr/local), BINDIR=, ...; make tools_uninstall'
	@echo
	@echo 'Packages for Debian, built in the pinned environment:'
	@echo '  make deb                   scif-dkms, scif-tools, libscif0, libscif-ring0, -dev of both: build/deb/*.deb'
	@echo
	@echo 'For development, in the pinned environment:'
	@echo '  make modules               scif.ko and scif_net.ko for a kernel of the lab (KERNEL=stock|plain|debug|kcsan)'
	@echo '  make tools                 the programs: scif, lab, ntb-emulator; libscif, the samples'
	@echo '  make check                 formatting, clippy, checkpatch, layers, the documentation'
	@echo '  make host-test             the tests that need no guest'
	@echo '  make docs                  Documentation/ as HTML: build/docs/index.html'
	@echo '  make shell                 a shell in the environment'
	@echo '  make update-pins           newer versions of compiler, QEMU and kernel in the archive'
	@echo '  make clean                 remove all files that were built in this clone'
	@echo '  make distclean             remove these files, the cached root and the cached kernels'

demo:
	@exec scripts/demo $(if $(FILE),"$(FILE)")

test: build
	@$(environment) scripts/test --kernel "$(KERNEL)" $(FILTER)

test-all: build
	@$(environment) scripts/test --kernel "$(KERNEL)" --all

HOURS ?= 1
soak: build
	@$(environment) env SCIF_SOAK_HOURS="$(HOURS)" scripts/test --kernel "$(KERNEL)" scif_soak::mixed_load_with_faults

build:
	@$(environment) scripts/build "$(KERNEL)"

conformance: build
	@$(environment) scripts/conformance --kernel "$(KERNEL)" $(TOPOLOGY)

arm64:
	@$(environment) scripts/arm64 build

conformance-arm64:
	@$(environment) scripts/arm64 conformance

bench: build
	@$(environment) scripts/bench --kernel "$(KERNEL)" $(if $(SHORT),--short)

host-test:
	@$(environment) scripts/test --host-only

check: modules
	@$(environment) scripts/check

modules:
	@$(module_build)

modules_install:
ifndef KDIR
	@echo 'error: modules_install takes KDIR=..., the tree of the kernel that will load the module' >&2; exit 2
else
	@$(module_build) modules_install
endif

# For the kernel of a Debian: what its header package lacks.
kernel-rust ntb-modules ntb-modules_install:
ifndef KDIR
	@echo 'error: $@ takes KDIR=..., the folder of the header package: /lib/modules/$$(uname -r)/build' >&2; exit 2
else
	@exec scripts/kernel-for-modules $@ "$(KDIR)" "$(SOURCE)"
endif

overlay:
ifndef KSRC
	@echo 'error: overlay takes KSRC=..., the kernel tree to which to add the driver' >&2; exit 2
else
	@exec scripts/overlay "$(KSRC)"
endif

update-pins:
	@scripts/environment pins

tools:
	@$(environment) scripts/tools

# Not where "make tools" builds: the two compilers' objects must not be mixed.
lib:
	@$(MAKE) -C tools/lib/scif OUTPUT="$(CURDIR)/build/lib-here"

lib_install lib_uninstall:
	@$(MAKE) -C tools/lib/scif OUTPUT="$(CURDIR)/build/lib-here" $(@:lib_%=%)

# Not where "make tools" builds, as above; and not with -C, as below.
sisci_install sisci_uninstall:
	@$(MAKE) --no-print-directory -f tools/lib/sisci/Makefile OUTPUT="$(CURDIR)/build/tools-here" $(@:sisci_%=%)

ring_install ring_uninstall:
	@$(MAKE) --no-print-directory -f tools/lib/ring/Makefile OUTPUT="$(CURDIR)/build/tools-here" $(@:ring_%=%)

# Not with -C: a relative DESTDIR is one of the folder where make was called.
tools_output ?= $(CURDIR)/build/tools-here
tools_install tools_uninstall:
	@$(MAKE) --no-print-directory -f tools/Makefile OUTPUT="$(tools_output)" $(@:tools_%=%)

deb:
	@$(environment) scripts/deb $$(scripts/deb version)

docs:
	@$(environment) scripts/docs
	@echo 'build/docs/index.html'

shell:
	@scripts/environment shell

clean:
ifdef KDIR
	@$(module_build) clean
else
	@$(MAKE) -s -C tests/programs clean
	@$(MAKE) -s -C tools/lib/scif clean
	@$(MAKE) -s -C samples/scif clean
	@$(MAKE) -s -C samples/ring clean
	@$(MAKE) -s -C samples/sisci clean
	rm -rf build target
endif

distclean: clean
	scripts/environment remove-all

.PHONY: help demo test test-all soak build conformance bench arm64 conformance-arm64 host-test check modules modules_install \
	kernel-rust ntb-modules ntb-modules_install overlay update-pins tools deb docs lib lib_install lib_uninstall \
	sisci_install sisci_uninstall ring_install ring_uninstall tools_install tools_uninstall shell clean distclean
