//! Runs the fuzz target with the name of this file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| beanpole_fuzz::run("reply", bytes));
