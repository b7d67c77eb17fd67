//! Nothing: no kernel is compiled against it.
#![no_std]
