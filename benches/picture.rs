//! Draws the figures of a run of the load benchmark: `cargo bench --bench picture -- RESULTS PICTURE`.
//!
//! `make bench` does this with the figures that it has just measured; `make picture` with those of RESULTS.md, for the
//! README. Owns the files; `picture/` draws.

use std::fs;
use std::process::ExitCode;

#[path = "picture/drawing.rs"]
mod drawing;

fn main() -> ExitCode {
    // cargo adds --bench.
    let paths: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [results, picture] = paths.as_slice() else {
        eprintln!("usage: cargo bench --bench picture -- RESULTS PICTURE");
        return ExitCode::from(2);
    };
    let text = fs::read_to_string(results).map_err(|error| format!("{results}: {error}"));
    let drawn =
        text.and_then(|text| drawing::draw(&text).ok_or(format!("{results} has no figures beside beanstalkd's")));
    match drawn.and_then(|svg| fs::write(picture, svg).map_err(|error| format!("{picture}: {error}"))) {
        Ok(()) => println!("the picture: {picture}"),
        Err(problem) => {
            eprintln!("no picture: {problem}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
