// SPDX-License-Identifier: GPL-2.0

//! Made-up machines, and the findings about them.

use super::*;
use crate::doctor::Grade;
use crate::doctor::facts::Bridge;
use crate::doctor::facts::Caller;
use crate::doctor::facts::Client;
use crate::doctor::facts::Cpus;
use crate::doctor::facts::Device;
use crate::doctor::facts::Engine;
use crate::doctor::facts::Interrupt;
use crate::doctor::facts::Networks;
use crate::doctor::facts::Speed;
use crate::watch;
use crate::watch::network;
use std::collections::BTreeMap;

/// Returns the facts of a machine without problems.
fn healthy() -> Facts {
    Facts {
        kernel: "7.3.4+deb13-amd64".into(),
        command_line: "intel_iommu=on".into(),
        is_loaded: true,
        device: Device {
            exists: true,
            group: Some("scif".into()),
            number: Some("10:120".into()),
            ..Device::default()
        },
        caller: Caller {
            name: "root".into(),
            pins: Some(8 << 20),
            pins_all: true,
            ..Caller::default()
        },
        knows_drivers: true,
        bridges: vec![Bridge {
            address: "0000:00:05.0".into(),
            id: "8086:0db4".into(),
            module: Some("ntb_hw_intel".into()),
            driver: Some("ntb_hw_intel".into()),
            bars: BTreeMap::from([(2, 1 << 20), (4, 1 << 30)]),
            iommu: Some("DMA-FQ".into()),
            client: Some(Client::Named("scif".into())),
            has_module: true,
            ..Bridge::default()
        }],
        has_iommu: true,
        engines: vec![Engine {
            name: "dma0chan0".into(),
            driver: Some("ioatdma".into()),
            users: 1,
            numa: None,
        }],
        links: Some(watch::links(
            "link state node aperture aperture_bytes engines doorbells\n\
             loopback up - local 4096 0 0x1\n\
             ntb:0000:00:05.0 up 1 arena 1073741824 1 0xf\n",
        )),
        networks: Networks {
            is_loaded: true,
            is_installed: Some(true),
            has_ntb_netdev: false,
            devices: vec![network::Device {
                name: "scif0".into(),
                node: 1,
                bridge: Some("0000:00:05.0".into()),
                is_up: true,
                carrier: Some(true),
                mtu: Some(1500),
                addresses: vec!["10.9.0.1/24".into()],
                ..network::Device::default()
            }],
        },
        end_of_memory: Some(64 << 30),
        log: Some(vec![
            "scif: 0000:00:05.0: this is node 0 (NTB port 0)".into(),
        ]),
        ..Facts::default()
    }
}

fn worst(facts: &Facts) -> Option<Grade> {
    judge(facts).into_iter().map(|finding| finding.grade).max()
}

/// Returns grade and advice of the finding with these words.
fn found(facts: &Facts, words: &str) -> (Grade, String) {
    let all = judge(facts);
    let Some(finding) = all.iter().find(|finding| finding.text.contains(words)) else {
        panic!("no finding says '{words}': {all:#?}");
    };
    (finding.grade, finding.advice.clone().unwrap_or_default())
}

/// Returns the commands of the finding with these words.
fn commands(facts: &Facts, words: &str) -> Vec<String> {
    let all = judge(facts).into_iter();
    let mut with_words = all.filter(|finding| finding.text.contains(words));
    with_words
        .next()
        .map(|finding| finding.commands)
        .unwrap_or_default()
}

fn changed(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

#[test]
fn healthy_machine_has_only_good_findings() {
    assert_eq!(worst(&healthy()), Some(Grade::Good));
    assert_eq!(found(&healthy(), "1.00 GiB at a time").0, Grade::Good);
    assert_eq!(found(&healthy(), "node 1 is online").0, Grade::Good);
    let network = "scif0 reaches node 1, MTU 1500, with 10.9.0.1/24";
    assert_eq!(found(&healthy(), network).0, Grade::Good);
}

#[test]
fn missing_module_or_unfit_kernel_is_a_problem() {
    let facts = changed(|facts| facts.is_loaded = false);
    assert_eq!(found(&facts, "not loaded").0, Grade::Problem);
    assert_eq!(commands(&facts, "not loaded"), ["modprobe scif"]);
    let facts = changed(|facts| {
        facts.is_loaded = false;
        facts.is_installed = Some(false);
        facts.options = Some(BTreeMap::from([("CONFIG_NTB".into(), "m".into())]));
        facts.kernel = "6.12.1".into();
    });
    assert_eq!(
        found(&facts, "not installed for Linux 6.12.1").0,
        Grade::Problem
    );
    assert_eq!(found(&facts, "too old").0, Grade::Problem);
    assert_eq!(found(&facts, "without CONFIG_RUST").0, Grade::Problem);
    assert!(
        !judge(&facts)
            .iter()
            .any(|finding| finding.text.contains("CONFIG_NTB"))
    );
    let facts = changed(|facts| facts.device.exists = false);
    assert_eq!(found(&facts, "no /dev/scif").0, Grade::Problem);
    assert_eq!(
        commands(&facts, "no /dev/scif")[1],
        "mknod -m 660 /dev/scif c 10 120"
    );
}

#[test]
fn missing_bridge_driver_or_client_is_a_problem() {
    let facts = changed(|facts| facts.bridges.clear());
    assert!(found(&facts, "no PCI device").1.contains("BIOS"));
    let facts = changed(|facts| {
        facts.bridges.clear();
        facts.knows_drivers = false;
    });
    assert_eq!(found(&facts, "no drivers for bridges").0, Grade::Problem);
    let facts = changed(|facts| {
        facts.bridges[0].driver = None;
        facts.bridges[0].has_module = false;
    });
    assert_eq!(commands(&facts, "has no driver"), ["modprobe ntb_hw_intel"]);
    let facts = changed(|facts| facts.bridges[0].client = None);
    assert_eq!(
        found(&facts, "has not made an NTB device").0,
        Grade::Problem
    );
    let facts = changed(|facts| {
        facts.bridges[0].driver = Some("switchtec".into());
        facts.bridges[0].client = None;
    });
    assert_eq!(
        commands(&facts, "its bridge has none"),
        ["modprobe ntb_hw_switchtec"]
    );
    let facts = changed(|facts| facts.bridges[0].client = Some(Client::Nobody));
    let bind = "echo 0000:00:05.0 > /sys/bus/ntb/drivers/scif/bind";
    assert_eq!(found(&facts, "has not taken it").0, Grade::Problem);
    assert_eq!(commands(&facts, "has not taken it"), [bind]);
    let other = Client::Named("ntb_transport".into());
    let facts = changed(|facts| facts.bridges[0].client = Some(other));
    let unbind = "echo 0000:00:05.0 > /sys/bus/ntb/drivers/ntb_transport/unbind";
    assert_eq!(commands(&facts, "is used by ntb_transport"), [unbind, bind]);
}

#[test]
fn driver_that_refuses_its_bridge_is_explained() {
    let refused = changed(|facts| {
        facts.bridges[0].driver = None;
        facts.bridges[0].client = None;
    });
    let bind = "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/bind";
    assert_eq!(commands(&refused, "loaded, but does not drive it"), [bind]);
    let said = "ntb_hw_intel 0000:00:05.0: probe with driver ntb_hw_intel failed with error -5";
    let mut quoted = refused;
    quoted.log.as_mut().unwrap().push(said.into());
    found(&quoted, said);
    quoted.bridges[0].unassigned = vec![4];
    let (_, advice) = found(&quoted, "BAR 4 has no address");
    assert!(advice.contains("above 4G"), "{advice}");
    assert_eq!(commands(&quoted, "BAR 4").len(), 2);
}

#[test]
fn bridge_refused_by_scif_is_explained() {
    let line = "scif: 0000:00:05.0: the bridge is not used: scif needs 2 scratchpads";
    let with = |lines: &[&str]| {
        changed(|facts| {
            facts.bridges[0].client = Some(Client::Nobody);
            facts.log = Some(lines.iter().map(|line| (*line).to_owned()).collect());
        })
    };
    assert!(found(&with(&[line]), line).1.contains("too few"));
    let gone = "scif: 0000:00:05.0: scif has released the bridge";
    found(&with(&[line, gone]), "has not taken it");
}

#[test]
fn user_without_access_gets_commands_to_fix_it() {
    let with = |group: &str, members: Option<&[&str]>| {
        changed(|facts| {
            facts.device.refusal = Some("EACCES".into());
            facts.device.group = Some(group.into());
            facts.caller.name = "ann".into();
            facts.caller.members =
                members.map(|names| names.iter().map(|name| (*name).into()).collect());
        })
    };
    let text = "the user ann can't open /dev/scif (EACCES)";
    assert_eq!(found(&with("root", None), text).0, Grade::Problem);
    assert_eq!(
        commands(&with("root", None), text),
        [
            "groupadd --system scif",
            "chgrp scif /dev/scif",
            "chmod 660 /dev/scif",
            "usermod -aG scif ann"
        ]
    );
    assert_eq!(
        commands(&with("scif", Some(&["bob"])), text),
        ["usermod -aG scif ann"]
    );
    let (_, advice) = found(&with("scif", Some(&["ann"])), text);
    assert!(
        advice.contains("log in again") && commands(&with("scif", Some(&["ann"])), text).is_empty()
    );
    let facts = changed(|facts| facts.device.refusal = Some("EPERM".into()));
    assert!(found(&facts, "EPERM").1.contains("container"));
    // Without the module the user can't lack a right.
    let facts = changed(|facts| {
        facts.device.refusal = Some("ENXIO".into());
        facts.is_loaded = false;
    });
    assert!(!judge(&facts).iter().any(|finding| finding.about == "user"));
}

#[test]
fn low_memlock_limit_gets_advice() {
    let with = |pins| {
        changed(|facts| {
            facts.caller.pins_all = false;
            facts.caller.pins = pins;
        })
    };
    let (grade, _) = found(&with(Some(8 << 20)), "may pin 8.00 MiB");
    assert_eq!(grade, Grade::Advice);
    for enough in [Some(1 << 30), None] {
        assert_eq!(worst(&with(enough)), Some(Grade::Good));
    }
}

#[test]
fn interrupts_on_isolated_cpus_get_advice() {
    let with = |isolated: &[u32]| {
        changed(|facts| {
            facts.cpus = Cpus {
                online: vec![0, 1, 2],
                isolated: isolated.to_vec(),
            };
            let interrupt = |number, cpus: &[u32]| Interrupt {
                number,
                cpus: cpus.to_vec(),
            };
            facts.bridges[0].interrupts =
                vec![interrupt(34, &[0]), interrupt(35, &[1]), interrupt(36, &[])];
        })
    };
    assert_eq!(worst(&with(&[])), Some(Grade::Good));
    assert_eq!(worst(&with(&[2])), Some(Grade::Good));
    assert_eq!(
        commands(&with(&[1]), "1 of its interrupts"),
        ["for irq in 35; do echo 0,2 > /proc/irq/$irq/smp_affinity_list; done"]
    );
}

#[test]
fn engines_on_other_numa_nodes_get_advice() {
    let with = |bridge, engines: &[Option<u32>]| {
        changed(|facts| {
            facts.bridges[0].numa = bridge;
            let engines = engines.iter().map(|numa| Engine {
                numa: *numa,
                ..facts.engines[0].clone()
            });
            facts.engines = engines.collect();
        })
    };
    let text = "no DMA engine is at NUMA node 1, where bridge 0000:00:05.0 is, but at 0, 2";
    found(&with(Some(1), &[Some(2), Some(0), Some(2)]), text);
    for (bridge, engines) in [
        (Some(1), [Some(0), Some(1)]),
        (Some(1), [Some(0), None]),
        (None, [Some(0); 2]),
    ] {
        assert_eq!(worst(&with(bridge, &engines)), Some(Grade::Good));
    }
    let facts = changed(|facts| facts.bridges[0].companions = vec!["0000:00:06.0".into()]);
    assert_eq!(
        found(&facts, "has other devices, too: 0000:00:06.0").0,
        Grade::Advice
    );
}

#[test]
fn bridge_below_its_best_link_speed_gets_advice() {
    let speed = |rate: &str, lanes| Speed {
        rate: rate.into(),
        lanes,
        best_rate: "16.0 GT/s PCIe".into(),
        most_lanes: 8,
    };
    let facts = changed(|facts| facts.bridges[0].speed = Some(speed("2.5 GT/s PCIe", 8)));
    assert_eq!(found(&facts, "connected with 2.5 GT/s").0, Grade::Advice);
    for unknown in [
        speed("Unknown", 0),
        speed("Unknown", 8),
        speed("2.5 GT/s PCIe", 0),
    ] {
        let facts = changed(|facts| facts.bridges[0].speed = Some(unknown));
        assert_eq!(worst(&facts), Some(Grade::Good));
    }
    let facts = changed(|facts| facts.bridges[0].speed = Some(speed("16.0 GT/s PCIe", 8)));
    assert_eq!(worst(&facts), Some(Grade::Good));
}

#[test]
fn memory_reachable_by_peers_is_judged() {
    let with = |name: &str, value: &str| {
        changed(|facts| {
            facts.parameters.insert(name.into(), value.into());
        })
    };
    assert_eq!(
        found(&with("aperture", "flat"), "read and write all memory").0,
        Grade::Problem
    );
    let small = changed(|facts| facts.bridges[0].bars = BTreeMap::from([(2, 1 << 20)]));
    assert_eq!(found(&small, "have to fit into 1.00 MiB").0, Grade::Advice);
    let tiny = changed(|facts| facts.bridges[0].bars.clear());
    assert_eq!(
        found(&tiny, "its memory windows have 0 B").0,
        Grade::Problem
    );
    // Two windows together have room for twice as much as the smaller one.
    let two = |one: u64, other: u64| BTreeMap::from([(2, one), (4, other)]);
    let several = changed(|facts| facts.bridges[0].bars = two(64 << 20, 64 << 20));
    found(&several, "128.0 MiB at a time");
    let mut fewer = several;
    fewer.parameters.insert("memory_windows".into(), "1".into());
    found(&fewer, "64.0 MiB at a time");
    let unlike = changed(|facts| facts.bridges[0].bars = two(64 << 20, 48 << 20));
    found(&unlike, "64.0 MiB at a time");
    // Without an IOMMU.
    let distrusting = |end| {
        changed(|facts| {
            facts.bridges[0].iommu = Some("identity".into());
            facts.command_line = "quiet iommu=pt".into();
            facts.end_of_memory = end;
        })
    };
    let bare = |end| {
        let mut facts = distrusting(end);
        facts.parameters.insert("allow_flat".into(), "1".into());
        facts
    };
    for (facts, other) in [
        (
            bare(Some(64 << 30)),
            "for more, give it a BAR that covers the 64.0 GiB",
        ),
        (
            distrusting(Some(64 << 30)),
            "64.0 GiB of this machine's memory and say allow_flat=1",
        ),
        (
            distrusting(Some(1 << 30)),
            "for more, if the other host is trusted, say allow_flat=1",
        ),
    ] {
        let (grade, advice) = found(&facts, "staging slots and nothing else (bounce)");
        assert_eq!(grade, Grade::Advice);
        assert!(
            advice.contains("boot without iommu=pt") && advice.contains(other),
            "{advice}"
        );
    }
    assert_eq!(
        found(&bare(Some(1 << 30)), "all memory of this machine").0,
        Grade::Advice
    );
    assert_eq!(
        found(&bare(None), "could reach all memory").0,
        Grade::Advice
    );
    let mut arena = bare(Some(1 << 30));
    arena.parameters.insert("aperture".into(), "arena".into());
    assert_eq!(found(&arena, "aperture=arena needs").0, Grade::Problem);
}

#[test]
fn missing_iommu_translation_gets_matching_advice() {
    let text = "staging slots and nothing else";
    let with = |kind: Option<&str>, has_iommu, command_line: &str| {
        changed(|facts| {
            facts.bridges[0].iommu = kind.map(Into::into);
            facts.has_iommu = has_iommu;
            facts.command_line = command_line.into();
        })
    };
    let advice = |facts: &Facts| found(facts, text).1;
    assert!(advice(&with(None, false, "quiet")).contains("in the BIOS"));
    assert!(advice(&with(None, false, "intel_iommu=off")).contains("boot without intel_iommu=off"));
    assert!(advice(&with(None, true, "quiet")).contains("newer BIOS"));
    let identity = with(Some("identity"), true, "intel_iommu=on");
    let said = advice(&identity);
    assert!(
        said.contains("iommu.passthrough=0") && !said.contains("BIOS"),
        "{said}"
    );
    assert_eq!(
        commands(&identity, text),
        [
            "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/unbind",
            "echo DMA > /sys/bus/pci/devices/0000:00:05.0/iommu_group/type",
            "echo 0000:00:05.0 > /sys/bus/pci/drivers/ntb_hw_intel/bind",
        ]
    );
    let mut shared = identity;
    shared.bridges[0].companions = vec!["0000:00:06.0".into()];
    assert!(advice(&shared).contains("drivers of 0000:00:06.0 unbound"));
}

#[test]
fn forced_swiotlb_is_a_problem_without_an_iommu() {
    let with = |kind: &str, word: &str| {
        changed(|facts| {
            facts.bridges[0].iommu = Some(kind.into());
            facts.command_line = format!("quiet {word}");
        })
    };
    let text = "no memory that the bridge may lead to";
    for word in ["swiotlb=force", "swiotlb=65536,force"] {
        let (grade, advice) = found(&with("identity", word), text);
        assert_eq!(
            (grade, advice.as_str()),
            (Grade::Problem, "boot without swiotlb=force")
        );
    }
    for facts in [
        with("identity", "swiotlb=noforce"),
        with("DMA", "swiotlb=force"),
    ] {
        assert!(
            !judge(&facts)
                .iter()
                .any(|finding| finding.text.contains(text))
        );
    }
}

#[test]
fn window_translated_by_the_peer_needs_allow_flat_or_iommu() {
    let idt = |allows_flat: &str, iommu: &str| {
        changed(|facts| {
            facts.bridges[0].driver = Some("ntb_hw_idt".into());
            facts.bridges[0].iommu = Some(iommu.into());
            facts
                .parameters
                .insert("allow_flat".into(), allows_flat.into());
        })
    };
    let text = "the other host sets where its windows lead";
    let (grade, advice) = found(&idt("0", "identity"), text);
    assert_eq!(grade, Grade::Problem);
    assert!(advice.contains("say allow_flat=1"), "{advice}");
    assert_eq!(found(&idt("1", "identity"), text).0, Grade::Advice);
    let (grade, _) = found(&idt("0", "DMA"), "an IOMMU translates for it");
    assert_ne!(grade, Grade::Problem);
    // An IOMMU is of no use if it treats the bridge and other devices as one.
    let shared = |allows_flat: &str| {
        let mut facts = idt(allows_flat, "DMA");
        facts.bridges[0].companions = vec!["0000:00:06.0".into()];
        facts
    };
    let (grade, advice) = found(&shared("0"), "with which the bridge shares an IOMMU group");
    assert_eq!(grade, Grade::Problem);
    assert!(advice.contains("allow_flat=1"), "{advice}");
    let trusted = found(&shared("1"), "its IOMMU group has other devices");
    assert_eq!(trusted.0, Grade::Advice);
}

#[test]
fn missing_engines_and_links_down_are_reported() {
    let facts = changed(|facts| facts.engines.clear());
    assert!(found(&facts, "no DMA engine").1.contains("ioatdma"));
    let facts = changed(|facts| {
        facts.engines.clear();
        facts.engine_modules = vec!["plx_dma".into()];
    });
    assert_eq!(commands(&facts, "no DMA engine"), ["modprobe plx_dma"]);
    let facts = changed(|facts| {
        facts.parameters.insert("dma_channels".into(), "0".into());
    });
    assert_eq!(found(&facts, "takes none").0, Grade::Advice);
    let state = |state: &str| {
        changed(|facts| {
            facts.links = Some(watch::links(&format!("link state node\nntb:x {state} -\n")));
        })
    };
    assert_eq!(
        found(&state("offering"), "no peer answers").0,
        Grade::Problem
    );
    assert_eq!(found(&state("down"), "does not come up").0, Grade::Problem);
    assert_eq!(found(&state("changing"), "is ending").0, Grade::Advice);
    let facts = changed(|facts| facts.links = None);
    assert_eq!(found(&facts, "can't be seen").0, Grade::Advice);
    let facts = changed(|facts| {
        facts.links = Some(watch::links(
            "link state node aperture aperture_bytes engines\nntb:0000:00:05.0 up 1 flat 4096 0\n",
        ));
    });
    assert!(commands(&facts, "no engine reaches node 1").is_empty());
    let mut late = facts;
    late.engines[0].users = 0;
    let (grade, advice) = found(&late, "no engine reaches node 1");
    assert!(grade == Grade::Advice && advice.contains("nothing uses dma0chan0"));
    assert_eq!(commands(&late, "no engine reaches node 1").len(), 2);
}

#[test]
fn engines_of_unfit_drivers_are_not_counted() {
    let of = |drivers: &[&str]| {
        changed(|facts| {
            let engines = drivers.iter().map(|driver| Engine {
                driver: Some((*driver).to_owned()),
                ..facts.engines[0].clone()
            });
            facts.engines = engines.collect();
        })
    };
    let facts = of(&["ptdma", "ae4dma", "ptdma"]);
    let (grade, advice) = found(&facts, "of ptdma are not used");
    assert!(grade == Grade::Advice && advice.contains("plx_dma"));
    assert_eq!(found(&facts, "of ae4dma are not used").0, Grade::Advice);
    // Unfit engines are as good as none.
    assert!(!found(&facts, "no DMA engine").1.contains("ptdma"));
    let facts = of(&["ptdma", "plx_dma"]);
    assert_eq!(found(&facts, "1 DMA channels (plx_dma)").0, Grade::Good);
}

#[test]
fn last_log_message_of_a_link_is_explained() {
    let with = |state: &str, lines: &[&str]| {
        changed(|facts| {
            facts.log = Some(lines.iter().map(|line| (*line).to_owned()).collect());
            facts.links = Some(watch::links(&format!(
                "link state node aperture\nntb:0000:00:05.0 {state} arena\n"
            )));
        })
    };
    let refused =
        "scif: 0000:00:05.0: no session: the driver of the bridge refuses the aperture: EINVAL";
    let begin = "scif: 0000:00:05.0: this is node 0 (NTB port 0)";
    let online = "scif: node 1 is online through 0000:00:05.0: arena";
    let down = |lines: &[&str]| with("down -", lines);
    let up = |lines: &[&str]| with("up 1", lines);
    let (grade, meaning) = found(&down(&[begin, refused]), refused);
    assert_eq!(grade, Grade::Problem);
    assert!(meaning.contains("alignment"));
    // The line is reported once, and there is no advice to check the cable.
    let findings = judge(&down(&[begin, refused]));
    assert_eq!(
        findings
            .iter()
            .filter(|each| each.text.contains(refused))
            .count(),
        1
    );
    assert!(
        !findings
            .iter()
            .any(|each| each.text.contains("does not come up"))
    );
    found(&down(&[refused, begin]), "does not come up");
    found(&down(&[begin, refused, online]), "does not come up");
    assert_eq!(worst(&up(&[refused, begin])), Some(Grade::Good));
    assert_eq!(worst(&up(&[begin, online, refused])), Some(Grade::Advice));
    // A line about another bridge is not about this one.
    let mut two = down(&[begin, "scif: 0000:00:06.0: can't offer a link: ENOMEM"]);
    let other = Bridge {
        address: "0000:00:06.0".into(),
        ..two.bridges[0].clone()
    };
    two.bridges.push(other);
    found(&two, "does not come up");
}

#[test]
fn absence_of_network_driver_is_no_problem() {
    let without = |is_installed| {
        changed(|facts| {
            facts.networks = Networks {
                is_installed,
                ..Networks::default()
            }
        })
    };
    let text = "scif_net is not loaded";
    assert_eq!(found(&without(None), text).0, Grade::Advice);
    assert_eq!(worst(&without(None)), Some(Grade::Advice));
    assert_eq!(commands(&without(Some(true)), text), ["modprobe scif_net"]);
    let (_, advice) = found(&without(Some(false)), text);
    assert!(advice.contains("scif-dkms") && commands(&without(Some(false)), text).is_empty());
    // Without scif it is of no use.
    let mut alone = without(None);
    alone.is_loaded = false;
    assert!(!judge(&alone).iter().any(|each| each.about == "network"));
    // A driver that is part of the kernel has no folder, but devices.
    let facts = changed(|facts| facts.networks.is_loaded = false);
    assert_eq!(worst(&facts), Some(Grade::Good));
}

#[test]
fn other_network_driver_for_bridges_gets_advice() {
    let mut facts = changed(|facts| facts.networks.has_ntb_netdev = true);
    let text = "ntb_netdev is loaded, and carries nothing";
    assert_eq!(commands(&facts, text), ["modprobe -r ntb_netdev"]);
    facts.bridges[0].client = Some(Client::Named("ntb_transport".into()));
    let (grade, _) = found(&facts, "ntb_netdev carries IP over bridge 0000:00:05.0");
    assert_eq!(grade, Grade::Advice);
}

#[test]
fn device_without_connection_gets_advice() {
    let with =
        |change: fn(&mut network::Device)| changed(|facts| change(&mut facts.networks.devices[0]));
    let facts = changed(|facts| facts.networks.devices.clear());
    let (grade, advice) = found(&facts, "node 1 has no network device here");
    assert!(grade == Grade::Advice && advice.contains("namespace"));
    // Ordinary users don't know which peers there are.
    let mut hidden = facts;
    hidden.links = None;
    assert!(!judge(&hidden).iter().any(|each| each.about == "network"));
    let facts = with(|device| {
        device.is_up = false;
        device.carrier = None;
    });
    assert_eq!(
        commands(&facts, "scif0 (node 1) is down"),
        ["ip link set scif0 up"]
    );
    let facts = with(|device| device.carrier = Some(false));
    let (grade, advice) = found(&facts, "scif0 (node 1) has no carrier");
    assert!(grade == Grade::Advice && advice.contains("load scif_net on node 1"));
    let mut alone = facts;
    alone.links = Some(watch::links("link state node\nntb:0000:00:05.0 down -\n"));
    let (grade, advice) = found(&alone, "no carrier, as node 1 is not online");
    assert!(grade == Grade::Advice && advice.contains("link"));
    for addresses in [&[][..], &["fe80::5c:ff:fe00:1/64"]] {
        let mut facts = healthy();
        facts.networks.devices[0].addresses = addresses.iter().map(|each| (*each).into()).collect();
        let (grade, _) = found(&facts, "has no address of yours");
        assert_eq!(grade, Grade::Advice);
    }
    let facts = with(|device| {
        device.addresses.clear();
        device.master = Some("br0".into());
    });
    assert_eq!(found(&facts, "as a part of br0").0, Grade::Good);
    let line = "scif: node 1: its frame rings can't be made: ENOMEM; its network device stays without carrier";
    let mut facts = with(|device| device.carrier = Some(false));
    facts.log.as_mut().unwrap().push(line.into());
    assert!(found(&facts, line).1.contains("free memory"));
}

#[test]
fn wrong_and_dropped_frames_get_advice() {
    let with =
        |change: fn(&mut network::Device)| changed(|facts| change(&mut facts.networks.devices[0]));
    let facts = with(|device| device.received.errors = 1);
    found(&facts, "scif0: 1 frames of node 1 were not");
    let facts = with(|device| device.sent.errors = 2);
    found(&facts, "scif0: 2 frames could not be sent to node 1");
    let facts = with(|device| {
        device.received.packets = 968;
        device.received.dropped = 32;
    });
    found(&facts, "scif0: 32 of 1000 frames of node 1 were dropped");
    let facts = with(|device| device.sent.dropped = 40);
    found(&facts, "scif0: 40 of 40 frames to node 1 were dropped");
    // A few are dropped while devices come up.
    let facts = with(|device| {
        device.received.dropped = 31;
        device.sent.packets = 1_000_000;
        device.sent.dropped = 1000;
    });
    assert_eq!(worst(&facts), Some(Grade::Good));
}

#[test]
fn unequal_mtus_in_one_bridge_get_advice() {
    let with = |mtus: [u32; 2], masters: [&str; 2]| {
        changed(|facts| {
            let devices = mtus.into_iter().zip(masters).zip(["scif0", "scif1"]);
            let first = facts.networks.devices[0].clone();
            let devices = devices.map(|((mtu, master), name)| network::Device {
                name: name.into(),
                mtu: Some(mtu),
                master: Some(master.into()),
                ..first.clone()
            });
            facts.networks.devices = devices.collect();
        })
    };
    let text = "scif0 and scif1 are parts of br0, and have different MTUs";
    let set = |mtus, command: &str| assert_eq!(commands(&with(mtus, ["br0"; 2]), text), [command]);
    set([1500, 9000], "ip link set scif0 mtu 9000");
    set([9000, 1500], "ip link set scif1 mtu 9000");
    assert_eq!(worst(&with([1500; 2], ["br0"; 2])), Some(Grade::Good));
    let apart = with([1500, 9000], ["br0", "br1"]);
    assert_eq!(worst(&apart), Some(Grade::Good));
}

#[test]
fn small_aperture_leaves_little_room_for_frames() {
    let with = |aperture: &str, bytes: u64| {
        changed(|facts| {
            facts.links = Some(watch::links(&format!(
                "link state node aperture aperture_bytes engines own_aperture own_bytes\n\
                 ntb:0000:00:05.0 up 1 arena 1073741824 1 {aperture} {bytes}\n"
            )));
        })
    };
    let text = "frames of node 1 get 512.0 KiB at most";
    assert_eq!(found(&with("bounce", 4 << 20), text).0, Grade::Advice);
    for (aperture, bytes) in [("arena", 8 << 20), ("flat", 4 << 20)] {
        assert_eq!(worst(&with(aperture, bytes)), Some(Grade::Good));
    }
}

/// Returns the texts of all files in a folder and in the folders below.
fn texts(folder: &std::path::Path) -> String {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.is_dir() {
            true => texts(&path),
            false => std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

/// Checks that the module's source has the words that doctor searches in the log, and that the user
/// guide has the chapters.
#[test]
fn explained_log_messages_exist_in_the_module() {
    let above = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let module = texts(&above.join("drivers/misc/scif"));
    for message in kernel_log::MESSAGES {
        // The module prints the number of an error by itself.
        let words = message.words.trim_end_matches(" ENOMEM");
        assert!(module.contains(words), "the module does not say '{words}'");
    }
    for words in [
        "this is node",
        "is online through",
        "scif has released the bridge",
    ] {
        assert!(module.contains(words), "the module does not say '{words}'");
    }
    let guide = std::fs::read_to_string(above.join("Documentation/user-guide.rst")).unwrap();
    let chapters = kernel_log::MESSAGES
        .iter()
        .filter_map(|message| message.meaning.split_once("the chapter \""));
    for (_, rest) in chapters {
        let chapter = rest.split('"').next().unwrap();
        assert!(
            guide.contains(&format!("\n{chapter}\n===")),
            "no chapter {chapter}"
        );
    }
}
