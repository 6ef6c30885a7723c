//! Connects the fuzzer with the target of this name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| beanpole_fuzz::run("http", bytes));
