// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of what the kernel offers in C only.
//!
//! Nearly all `unsafe` of the module lives here: the layers above use these types and hold no raw
//! pointers. A wrapper undoes in `Drop` what its constructor did, and knows nothing of SCIF.

pub(crate) mod bindings;
