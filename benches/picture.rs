//! Draws the figures of a run of the load benchmark: `cargo bench --bench picture -- RESULTS PICTURE`; or publishes
//! them: `cargo bench --bench picture -- MEASURED RESULTS CSV COMMIT`.
//!
//! `make bench` draws the figures that it has just measured, and `make picture` those of RESULTS.md, for the README;
//! `make results` publishes. Owns the files; `picture/` has the drawing and the tables.

use std::fs;
use std::process::ExitCode;

#[path = "picture/drawing.rs"]
mod drawing;
#[path = "picture/publish.rs"]
mod publish;

fn main() -> ExitCode {
    // cargo adds --bench.
    let paths: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let done = match paths.as_slice() {
        [results, picture] => draw(results, picture),
        [measured, results, csv, commit] => publish(measured, results, csv, commit),
        _ => {
            eprintln!("usage: cargo bench --bench picture -- RESULTS PICTURE, or MEASURED RESULTS CSV COMMIT");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("no picture: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn draw(results: &str, picture: &str) -> Result<(), String> {
    let drawn = drawing::draw(&read(results)?).ok_or(format!("{results} has no figures beside beanstalkd's"));
    write(picture, &drawn?)
}

fn publish(measured: &str, results: &str, csv: &str, commit: &str) -> Result<(), String> {
    let (figures, lacking) = (read(measured)?, || format!("{measured} or {results} has no tables"));
    write(csv, &publish::csv(&figures, commit).ok_or_else(lacking)?)?;
    write(results, &publish::published(&read(results)?, &figures, commit).ok_or_else(lacking)?)
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))?;
    println!("wrote {path}");
    Ok(())
}
