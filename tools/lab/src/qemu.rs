// SPDX-License-Identifier: GPL-2.0
//! The command line of a guest's QEMU.
//!
//! The places of devices are fixed, so that tests can name them: NTB `k` of a node is in PCI slot
//! `5 + k`, DMA engine `k` in slot `0x10 + k`. The devices that the lab itself needs are in other
//! slots.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use ntb_emulator::config::Windows;
use serde_json::json;

use crate::config::Config;
use crate::config::Flavour;
use crate::kernel::Kernel;
use crate::paths;
use crate::paths::LabPaths;
use crate::wire::PORT_NAME;

/// Returns the PCI slot of a node's NTB number `index`.
pub fn ntb_slot(index: usize) -> usize {
    5 + index
}

/// Returns the PCI slot of a node's DMA engine number `index`.
pub fn dma_slot(index: usize) -> usize {
    0x10 + index
}

/// The PCI slot of a device that only has memory, its BAR 2.
const DEVICE_MEMORY_SLOT: usize = 0x1c;

/// The parts of a guest.
pub(crate) struct Machine<'a> {
    pub(crate) node: usize,
    pub(crate) config: &'a Config,
    pub(crate) paths: &'a LabPaths,
    pub(crate) kernel: &'a Kernel,
    pub(crate) initramfs: &'a Path,
    pub(crate) agent: &'a Path,
    pub(crate) ram: &'a Path,
    /// The vfio-user sockets of its NTBs and DMA engines.
    pub(crate) ntbs: Vec<PathBuf>,
    pub(crate) dmas: Vec<PathBuf>,
}

impl Machine<'_> {
    /// Returns the command, ready to be started.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-nographic", "-no-reboot"]);
        command.args(["-machine", "q35,memory-backend=ram"]);
        command.args(["-accel", "tcg,thread=multi"]);
        command.args([
            "-cpu",
            match self.config.kernel {
                // With ERMS and FSRM the stock kernel copies by "rep movsb", which TCG runs
                // byte by byte.
                Flavour::Stock | Flavour::Plain => "max,-erms,-fsrm",
                // With five-level paging KASAN floods the early boot.
                Flavour::Debug | Flavour::Kcsan => "max,-erms,-fsrm,la57=off",
            },
        ]);
        command.args(["-smp", &self.config.processors.to_string()]);
        // As the firmware of a host tells it, each time the same.
        let uuid = format!("5c1f5c1f-0000-4000-8000-{:012x}", self.node);
        command.args(["-uuid", &uuid]);
        command.args(["-m", &self.config.memory.to_string()]);
        self.object(
            &mut command,
            json!({
                "qom-type": "memory-backend-file",
                "id": "ram",
                "size": u64::from(self.config.memory) << 20,
                "mem-path": text(self.ram)?,
                "share": true,
                "prealloc": true,
            }),
        );
        command.arg("-kernel").arg(self.kernel.image());
        command.arg("-initrd").arg(self.initramfs);
        command.args(["-append", &self.kernel_command_line()?]);

        let console = text(&self.paths.console(self.node))?;
        let console_log = text(&self.paths.console_log(self.node))?;
        command.args([
            "-chardev",
            &format!(
                "socket,id=console,path={console},server=on,wait=off,logfile={console_log},logappend=on"
            ),
            "-serial",
            "chardev:console",
        ]);
        let monitor = text(&self.paths.monitor(self.node))?;
        command.args(["-qmp", &format!("unix:{monitor},server=on,wait=off")]);
        let agent = text(&self.paths.agent(self.node))?;
        command.args([
            "-chardev",
            &format!("socket,id=agent,path={agent},server=on,wait=off"),
        ]);
        if self.config.iommu.exists(self.node) {
            // The IOMMU comes before the devices that are behind it. In caching mode the guest
            // announces each mapping, and QEMU tells the emulator.
            self.device(
                &mut command,
                json!({"driver": "intel-iommu", "caching-mode": true}),
            );
        }
        self.own_device(
            &mut command,
            json!({"driver": "virtio-serial-pci", "id": "serial"}),
            0x2,
        );
        self.device(
            &mut command,
            json!({"driver": "virtserialport", "chardev": "agent", "name": PORT_NAME}),
        );
        self.export(&mut command, "root", Path::new("/"), true, 0x3)?;
        self.export(&mut command, "exchange", &self.paths.exchange(), false, 0x4)?;
        self.export(&mut command, "src", paths::repository(), true, 0x1a)?;
        self.export(&mut command, "cache", paths::cache(), true, 0x1b)?;
        if let Some(size) = self.config.device_size() {
            self.object(
                &mut command,
                json!({
                    "qom-type": "memory-backend-file",
                    "id": "device-memory",
                    "size": size,
                    "mem-path": text(self.ram)?,
                    "share": true,
                }),
            );
            self.device(
                &mut command,
                json!({
                    "driver": "ivshmem-plain",
                    "memdev": "device-memory",
                    "addr": format!("{DEVICE_MEMORY_SLOT:x}"),
                }),
            );
        }
        for (index, socket) in self.ntbs.iter().enumerate() {
            self.vfio_user(
                &mut command,
                &format!("ntb{index}"),
                ntb_slot(index),
                socket,
            )?;
        }
        for (index, socket) in self.dmas.iter().enumerate() {
            self.vfio_user(
                &mut command,
                &format!("dma{index}"),
                dma_slot(index),
                socket,
            )?;
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn kernel_command_line(&self) -> Result<String> {
        let mut words = vec![
            "console=ttyS0".to_owned(),
            // Warnings and worse reach the console; the rest is in dmesg.
            "loglevel=5".to_owned(),
            "log_buf_len=8M".to_owned(),
            // The kernel checks the hardware's timers against each other. The checks fail at random
            // when the host lets a virtual CPU wait.
            "no_timer_check".to_owned(),
            "tsc=nowatchdog".to_owned(),
            // Without this Debian's kernel moves itself to a random place: over memory that was
            // requested by its address (cma=64M@256M), and away from its symbols.
            "nokaslr".to_owned(),
            // Tests read the memory of bridges through sysfs, as a device would find it. Without
            // this no program may do that while a driver has the memory.
            "iomem=relaxed".to_owned(),
            // A node whose kernel is broken dies, and its QEMU ends.
            "oops=panic".to_owned(),
            "panic=-1".to_owned(),
            format!("lab.node={}", self.node),
            format!("lab.agent={}", text(self.agent)?),
            format!("lab.modules={}", text(&self.kernel.modules())?),
        ];
        let mut windows = [self.config.windows]
            .into_iter()
            .chain(self.config.more_links.clone());
        if windows.any(|windows| matches!(windows, Windows::Fixed { .. })) {
            // A stock kernel has a pool for DMA in atomic contexts. It would take the place of the
            // contiguous memory that the windows lead to.
            words.push("initcall_blacklist=dma_atomic_pool_init".to_owned());
        }
        if self.config.iommu.exists(self.node) {
            // Scalable mode is off, as QEMU's emulation has only parts of it.
            words.push("intel_iommu=on,sm_off".to_owned());
        }
        if self.config.kernel == Flavour::Debug {
            // Without this the first report silences those that follow.
            words.push("kasan_multi_shot".to_owned());
        }
        words.extend(self.config.append.iter().cloned());
        Ok(words.join(" "))
    }

    fn object(&self, command: &mut Command, object: serde_json::Value) {
        command.args(["-object", &object.to_string()]);
    }

    fn device(&self, command: &mut Command, device: serde_json::Value) {
        command.args(["-device", &device.to_string()]);
    }

    fn export(
        &self,
        command: &mut Command,
        tag: &str,
        folder: &Path,
        read_only: bool,
        slot: usize,
    ) -> Result<()> {
        command.args([
            "-fsdev",
            &format!(
                "local,id={tag},path={},security_model=none,multidevs=remap{}",
                text(folder)?,
                if read_only { ",readonly=on" } else { "" }
            ),
        ]);
        let device = json!({
            "driver": "virtio-9p-pci",
            "id": format!("{tag}-9p"),
            "fsdev": tag,
            "mount_tag": tag,
        });
        self.own_device(command, device, slot);
        Ok(())
    }

    /// Adds a virtio device that the lab itself needs, in this slot.
    ///
    /// A file system over 9p does not survive in Linux that its device loses its state. A device of
    /// PCI Express can keep its state while the guest sleeps, and needs a port for that.
    fn own_device(&self, command: &mut Command, mut device: serde_json::Value, slot: usize) {
        if self.config.sleep {
            let port = format!("port{slot:x}");
            self.device(
                command,
                json!({
                    "driver": "pcie-root-port",
                    "id": port,
                    "addr": format!("{slot:x}"),
                    "chassis": slot,
                    "hotplug": false,
                }),
            );
            device["bus"] = json!(port);
            device["x-pcie-pm-no-soft-reset"] = json!(true);
        } else {
            device["addr"] = json!(format!("{slot:x}"));
        }
        self.device(command, device);
    }

    /// Adds a vfio-user device. Each write has arrived before the next instruction, also where
    /// every access to a window traps. By default QEMU would queue the writes of a bridge, and a
    /// read by its other end would not push them ahead of it, as PCI Express promises.
    fn vfio_user(&self, command: &mut Command, id: &str, slot: usize, socket: &Path) -> Result<()> {
        self.device(
            command,
            json!({
                "driver": "vfio-user-pci",
                "id": id,
                "addr": format!("{slot:x}"),
                "socket": {"type": "unix", "path": text(socket)?},
                "x-no-posted-writes": true,
            }),
        );
        Ok(())
    }
}

/// Checks a path: QEMU's option strings need text without commas and spaces.
fn text(path: &Path) -> Result<String> {
    let name = path
        .to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))?;
    if name.contains([',', ' ']) {
        bail!("{name} has a comma or a space, which QEMU's options cannot take");
    }
    Ok(name.to_owned())
}
