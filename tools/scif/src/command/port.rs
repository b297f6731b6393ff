// SPDX-License-Identifier: GPL-2.0

//! The port that `scif serve` listens to.

/// The port of `scif serve`, unless told otherwise.
pub const DEFAULT_PORT: u16 = 2050;

/// Reads a port that can be listened to or connected to.
pub fn parse_port(text: &str) -> std::result::Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!(
            "'{text}' is not a port from 1 to 65535 (below {} needs a privilege to serve)",
            scif_sys::ADMIN_PORT_END
        )),
        Ok(port) => Ok(port),
    }
}
