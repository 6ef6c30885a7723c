//! Draws the results of the load benchmark and writes the values as CSV. Arguments: `RESULTS PICTURE`. With the three
//! arguments `MEASURED RESULTS COMMIT`, publishes the results instead. Run `cargo bench --bench picture -- ARGUMENTS`.
//!
//! `make bench` draws the new results, `make picture` draws those of RESULTS.md for the README, and `make results`
//! publishes the new results. Owns the access to files; `picture/` contains the other code.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

#[path = "picture/drawing.rs"]
mod drawing;
#[path = "picture/publish.rs"]
mod publish;

fn main() -> ExitCode {
    // cargo adds the argument `--bench`.
    let paths: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let done = match paths.as_slice() {
        [results, picture] => draw(results, picture),
        [measured, results, commit] => publish(measured, results, commit),
        _ => {
            eprintln!("usage: cargo bench --bench picture -- RESULTS PICTURE, or MEASURED RESULTS COMMIT");
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
    let (figures, lacking) = (read(results)?, || format!("{results} has no figures to compare with beanstalkd's"));
    write(picture, &drawing::draw(&figures).ok_or_else(lacking)?)?;
    let csv = Path::new(picture).with_extension("csv");
    write(&csv.to_string_lossy(), &publish::csv(&figures).ok_or_else(lacking)?)
}

fn publish(measured: &str, results: &str, commit: &str) -> Result<(), String> {
    let published = publish::published(&read(results)?, &read(measured)?, commit);
    write(results, &published.ok_or(format!("{measured} or {results} has no tables"))?)
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))?;
    println!("wrote {path}");
    Ok(())
}
