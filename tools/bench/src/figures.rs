// SPDX-License-Identifier: GPL-2.0
//! The names of figures and lines, by which results are entered and found.

pub const WRITE: &str = "write, throughput";
pub const READ: &str = "read, throughput";
pub const STREAM: &str = "stream of messages, throughput";
pub const MESSAGE: &str = "stream of messages, each";
pub const TRIP: &str = "message round trip, median";
pub const COPY: &str = "single write, median";
pub const WINDOW: &str = "window, median";
pub const CONNECTION: &str = "connection, median";
pub const CALL: &str = "call, mean";
pub const THREADS: &str = "scaling with threads, stream of 4 KiB messages";
pub const CONNECTIONS: &str = "scaling with connections, write of 64 KiB";
pub const ENGINES: &str = "scaling with DMA channels, write on 4 connections, paced engines";
pub const MODES_CPU: &str = "modes, write of 1 MiB by CPU";
pub const MODES_AUTO: &str = "modes, write of 1 MiB, no flag";
pub const MODES_DMA: &str = "modes, write of 1 MiB by DMA";
pub const MODES_ARENA: &str = "modes, write of 1 MiB by DMA, windows that trap";
pub const MODES_WINDOW: &str = "modes, register+unregister, windows that trap";
pub const MODEL: &str = "with the link model";
pub const MANY: &str = "many";
pub const NET_MTU: &str = "IP, a TCP flow by MTU";
pub const NET_MESSAGE: &str = "IP, a TCP flow by size of a write";
pub const NET_TRIP: &str = "IP, TCP round trip of 1 B by SO_BUSY_POLL, median";
pub const NET_PACKETS: &str = "IP, UDP packets per second";
pub const NET_MODEL: &str = "IP, 4 TCP flows with the link model";

/// Comparisons in pairs: the ratio of SCIF to the reference.
pub const PAIRS: &str = "pairs";

pub const PAIR_WRITE: &str = "write by DMA / raw DMA";
pub const PAIR_READ: &str = "read by DMA / raw DMA";
pub const PAIR_WRITE_PAGES: &str = "write by DMA, small pages / raw DMA by pages";
pub const PAIR_READ_PAGES: &str = "read by DMA, small pages / raw DMA by pages";
pub const PAIR_MMAP: &str = "mmap store / raw aperture";
pub const PAIR_CPU: &str = "USECPU write / raw aperture";
pub const PAIR_SMALL: &str = "small write / (ioctl + raw aperture)";
pub const PAIR_DOORBELL: &str = "round trip asleep / raw doorbell";
pub const PAIR_DOORBELL_THREAD: &str = "round trip asleep / raw doorbell, from a thread";
pub const PAIR_TCP: &str = "round trip asleep / TCP";
pub const PAIR_TCP_POLLING: &str = "round trip, both poll / TCP";
pub const PAIR_STREAM: &str = "stream / raw aperture";
pub const PAIR_STREAM_TCP: &str = "stream, time of each / TCP";
pub const PAIR_RING: &str = "mapped ring / raw aperture";
pub const PAIR_RING_TCP: &str = "mapped ring, time of each / TCP";
pub const PAIR_RING_TRIP: &str = "mapped ring, round trip, both poll / TCP";
pub const PAIR_BULK_TCP: &str = "stream / TCP";
pub const PAIR_WINDOW: &str = "register+unregister / (raw pin + 2 doorbells)";
pub const PAIR_HUGE: &str = "register+unregister / the same with huge pages";
pub const PAIR_CONNECT: &str = "connect / raw doorbell";
pub const PAIR_CLOSE: &str = "close / raw doorbell";
pub const PAIR_SISCI_STORES: &str = "SISCI, stores / scif_mmap() stores";
pub const PAIR_SISCI_PUSH: &str = "SISCI, DMA / scif_writeto()";
pub const PAIR_SISCI_PULL: &str = "SISCI, DMA / scif_readfrom()";
pub const PAIR_SISCI_INTERRUPT: &str = "SISCI, interrupt / raw doorbell";
pub const PAIR_SISCI_INTERRUPT_USUAL: &str = "SISCI, interrupt / raw doorbell, as loaded";
pub const PAIR_SISCI_INTERRUPT_THREAD: &str = "SISCI, interrupt / raw doorbell, from a thread";
pub const SISCI_SEQUENCE: &str = "SISCI, SCICheckSequence(), nanoseconds over an empty loop";
pub const PAIR_NET_USUAL: &str = "IP, flow / ntb_netdev, MTU 1500";
pub const PAIR_NET_LARGE: &str = "IP, flow / ntb_netdev, MTU 64000";
pub const PAIR_NET_TRIP: &str = "IP, round trip asleep / ntb_netdev";
pub const PAIR_NET_TRIP_POLLING: &str = "IP, round trip with SO_BUSY_POLL / ntb_netdev";
pub const PAIR_NET_PACKETS: &str = "IP, UDP packets of 64 B per second / ntb_netdev";
pub const PAIR_NET_MODEL: &str = "IP, 4 flows / the link of the model";

pub const SCIF: &str = "SCIF";
pub const SCIF_ASLEEP: &str = "SCIF, both asleep";
pub const SCIF_POLLING: &str = "SCIF, both poll";
pub const SCIF_DMA: &str = "SCIF, DMA";
pub const SCIF_DMA_HUGE: &str = "SCIF, DMA, huge pages";
pub const SCIF_CPU: &str = "SCIF, CPU";
pub const SCIF_AUTO: &str = "SCIF, no flag";
pub const SCIF_MMAP: &str = "SCIF, mmap";
pub const RING: &str = "SCIF, mapped ring";
pub const RING_POLLING: &str = "SCIF, mapped ring, both poll";
pub const TCP: &str = "TCP";
pub const TCP_POLLING: &str = "TCP, both poll";
pub const RAW_DMA: &str = "raw DMA";
pub const RAW_DMA_PAGES: &str = "raw DMA, by pages";
pub const RAW_APERTURE: &str = "raw aperture";
pub const RAW_DOORBELL: &str = "raw doorbell";
pub const RAW_DOORBELL_THREAD: &str = "raw doorbell, from a thread";
pub const NTB_PERF: &str = "ntb_perf, CPU";
pub const NTB_PERF_DMA: &str = "ntb_perf, DMA";

pub const REGISTER: &str = "register";
pub const UNREGISTER: &str = "unregister";
pub const REGISTER_HUGE: &str = "register, huge pages";
pub const UNREGISTER_HUGE: &str = "unregister, huge pages";
pub const PIN: &str = "raw pin + unpin";
pub const PIN_HUGE: &str = "raw pin + unpin, huge pages";

pub const CONNECT: &str = "connect";
pub const CLOSE: &str = "close";
pub const TCP_CONNECT: &str = "TCP, connect";

pub const EMPTY: &str = "ioctl that does nothing";

/// Lines of [`MODEL`].
pub const MODEL_WRITE: &str = "write by DMA";
pub const MODEL_READ: &str = "read by DMA";

/// Lines of [`NET_MESSAGE`].
pub const NET_OURS_USUAL: &str = "scif_net, MTU 1500";
pub const NET_OURS_LARGE: &str = "scif_net, MTU 64000";
pub const NET_THEIRS_USUAL: &str = "ntb_netdev, MTU 1500";
pub const NET_THEIRS_LARGE: &str = "ntb_netdev, MTU 64000";

/// Lines of [`NET_MODEL`].
pub const NET_LIMIT: &str = "the link's limit";
pub const NET_BY_ENGINE: &str = "bytes copied by engines / bytes sent";

/// Lines of the modes.
pub const FLAT_MODE: &str = "flat";
pub const ARENA_MODE: &str = "arena";
pub const BOUNCE_MEBIBYTE_MODE: &str = "bounce, 1 MiB";
pub const BOUNCE_SMALLEST_MODE: &str = "bounce, 64 KiB";
pub const LOCAL_COPY: &str = "memcpy in one node";

/// Lines of [`MANY`].
pub const FIRST_CONNECTIONS: &str = "connect, the first hundred of 10,000";
pub const LAST_CONNECTIONS: &str = "connect, the last hundred of 10,000";
pub const LAST_OF_FIRST: &str = "connect, the last hundred of 10,000 / the first";
pub const IDLE_CONNECTION: &str = "bytes of an idle connection beyond its ring";
pub const UNREGISTER_ALL: &str = "unregister 10,000 windows at once";
pub const UNREGISTER_ONE: &str = "unregister one window";
pub const LOOK_UP_FEW: &str = "64 B write, 10 windows";
pub const LOOK_UP_MANY: &str = "64 B write, 100,000 windows";
