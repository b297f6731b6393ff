// SPDX-License-Identifier: GPL-2.0
//! Tests of configurations, and of the emulator's configuration that follows.

use super::*;

#[test]
fn topologies_link_the_right_nodes() {
    assert_eq!(Topology::Pair.links(2), [(0, 1)]);
    assert_eq!(Topology::Star.links(4), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(Topology::Chain.links(3), [(0, 1), (1, 2)]);
    assert_eq!(Topology::Ring.links(3), [(0, 1), (1, 2), (0, 2)]);
    assert_eq!(Topology::Ring.links(2), [(0, 1)]);
    assert!(Topology::Star.links(1).is_empty());
}

#[test]
fn emulator_accepts_the_lab_topology() {
    let mut config = Config::new("x", 3, Flavour::Plain);
    config.dma_channels = 2;
    let files = (0..3).map(|n| PathBuf::from(format!("/ram-{n}"))).collect();
    let topology = config.emulated(Path::new("/run"), files);
    topology.validate().unwrap();
    assert_eq!(topology.ntb_sockets(0).len(), 2);
    assert_eq!(topology.ntb_sockets(2).len(), 1);
    assert_eq!(topology.dma_sockets(2).len(), 2);
}

#[test]
fn weak_order_parses_seed_and_engine_place() {
    let mut config = Config::new("x", 2, Flavour::Plain);
    assert_eq!(config.order(), None);
    let order = parse_weak_order("7").unwrap();
    assert_eq!(parse_weak_order("7,switch"), Ok(order));
    let root = parse_weak_order("7,root").unwrap();
    assert_ne!(root, order);
    for nonsense in ["", "x", "7,", "7,left", "-1"] {
        assert!(parse_weak_order(nonsense).is_err(), "{nonsense}");
    }
    config.weak_order = Some(root);
    assert_eq!(
        config.order().as_deref(),
        Some("weak, seed 7, engines at the root")
    );
    let files = (0..2).map(|n| PathBuf::from(format!("/ram-{n}"))).collect();
    let topology = config.emulated(Path::new("/run"), files);
    assert_eq!(topology.weak_order, Some(root));
}

#[test]
fn link_model_is_passed_to_the_emulator() {
    let mut config = Config::new("x", 2, Flavour::Plain);
    let files = || (0..2).map(|n| PathBuf::from(format!("/ram-{n}"))).collect();
    let emulated = |config: &Config| config.emulated(Path::new("/run"), files());
    assert!(!emulated(&config).has_model());
    assert_eq!(config.model(), None);
    config.link_model = Some(LinkModel::Gen3x8);
    config.slowdown = 30;
    config.check().unwrap();
    let topology = emulated(&config);
    topology.validate().unwrap();
    assert_eq!(topology.slowdown, 30);
    assert_eq!(topology.links[0].model, Some(LinkFigures::GEN3_X8));
    assert_eq!(topology.guests[1].engine, Some(EngineFigures::default()));
    let said = config.model().unwrap();
    assert_eq!(
        said,
        "links as gen3x8, DMA channels of 4500 MB/s, 30 times as slow"
    );
    // Only engines have a model.
    config.link_model = None;
    config.engine_rate = Some(1_000_000_000);
    let topology = emulated(&config);
    assert_eq!(topology.links[0].model, None);
    assert_eq!(topology.guests[0].engine.unwrap().bandwidth, 1_000_000_000);
    config.engine_rate = Some(1);
    let error = format!("{:#}", config.check().unwrap_err());
    assert!(error.contains("rate of an engine"), "{error}");
    config.engine_rate = None;
    config.slowdown = 0;
    assert!(config.check().is_err());
}

#[test]
fn rates_parse_with_suffix() {
    assert_eq!(parse_rate("500M"), Ok(500_000_000));
    assert_eq!(parse_rate("7"), Ok(7));
    assert!(parse_rate("fast").is_err());
    assert!(parse_rate("99999999999G").is_err());
}

#[test]
fn further_links_come_after_the_first_ones() {
    let mut config = Config::new("x", 3, Flavour::Plain);
    config.more_links = vec![Windows::Trapped { size: 4096 }];
    let files = (0..3).map(|n| PathBuf::from(format!("/ram-{n}"))).collect();
    let topology = config.emulated(Path::new("/run"), files);
    topology.validate().unwrap();
    let windows: Vec<Windows> = topology.links.iter().map(|link| link.windows).collect();
    let trapped = config.more_links[0];
    assert_eq!(
        windows,
        [Windows::Aperture, Windows::Aperture, trapped, trapped]
    );
    assert_eq!(topology.ntb_sockets(1).len(), 2);
}

#[test]
fn window_forms_are_parsed() {
    assert_eq!(parse_windows("aperture"), Ok(Windows::Aperture));
    assert_eq!(parse_windows("mixed"), Ok(Windows::Mixed));
    assert_eq!(
        parse_windows("fixed:256M:2M"),
        Ok(Windows::Fixed {
            base: 256 << 20,
            size: 2 << 20
        })
    );
    assert_eq!(
        parse_windows("trapped:1M"),
        Ok(Windows::Trapped { size: 1 << 20 })
    );
    assert_eq!(
        parse_aperture("64K"),
        Ok(Windows::Trapped { size: 64 << 10 })
    );
    assert!(parse_aperture("fixed:1").is_err());
    assert!(parse_windows("fixed:1").is_err());
    assert!(parse_windows("fixed:99999999999G:1").is_err());
    assert!(parse_windows("").is_err());
}

#[test]
fn invalid_lab_names_are_refused() {
    assert!(check_name("default").is_ok());
    assert!(check_name("").is_err());
    assert!(check_name("../etc").is_err());
    assert!(check_name(&"x".repeat(41)).is_err());
}
