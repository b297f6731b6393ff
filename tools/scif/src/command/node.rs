// SPDX-License-Identifier: GPL-2.0

//! The number of a node on the command line, the same in every command.

/// Reads a node.
pub fn parse_node(text: &str) -> std::result::Result<u16, String> {
    text.parse().map_err(|_| {
        format!(
            "'{text}' is not a node: write its number alone, such as 1; `scif nodes` lists them"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_must_be_a_16_bit_number() {
        assert_eq!(parse_node("1"), Ok(1));
        assert_eq!(parse_node("65535"), Ok(65535));
        for text in ["node1", "", "-1", "65536", "1:", "x"] {
            let error = parse_node(text).unwrap_err();
            assert!(error.contains("such as 1"), "{error}");
        }
    }
}
