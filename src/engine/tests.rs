//! Tests of the engine as a whole.
use super::*;
