# SPDX-License-Identifier: GPL-2.0
#
# Which Linux: the series that are taken, and all in which one differs from the next.
#
# Backports keep one series at a time: when the archive replaces 7.3 by 7.4, a new
# machine takes 7.4. LINUX_SERIES=7.3 in the environment asks for a certain one.
# shellcheck shell=bash disable=SC2034

# The oldest series that has what the module takes of Rust in the kernel.
LINUX_SERIES_MINIMUM=7.3

# The newest series that the project was seen working with. A newer one is taken
# all the same, and a line says so.
LINUX_SERIES_TRIED=7.3

# The source of a series, and the binary kernel of a release, in Debian's packages.
linux_source_package() { # SERIES
	echo "linux-source-$1"
}
linux_binary_packages() { # RELEASE, for example 7.3.4+deb13-amd64
	echo "linux-binary-$1 linux-base-$1 linux-modules-$1 linux-headers-$1"
}

# What is built of the kernel's own source for a kernel that was built without it: the
# folders of the tree, single files, and the options that stand for them.
linux_ntb_folders() { # SERIES
	echo drivers/ntb drivers/pci/switch
}
linux_ntb_files() { # SERIES
	echo drivers/net/ntb_netdev.c drivers/dma/plx_dma.c drivers/dma/dmaengine.h drivers/dma/dmatest.c
}
linux_ntb_options() { # SERIES
	echo NTB NTB_AMD NTB_EPF NTB_IDT NTB_INTEL NTB_SWITCHTEC NTB_PINGPONG NTB_TOOL NTB_PERF \
		NTB_TRANSPORT NTB_NETDEV PCI_SW_SWITCHTEC PLX_DMA DMATEST
}
