//! The documents that tests check, other than manual pages. Shared by several test programs.

pub const DOCUMENTS: [&str; 9] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches/JUDGE.md",
    "benches/RESULTS.md",
    "examples/CLIENTS.md",
    "examples/README.md",
];
