//! `connections`: the connections to the server, and their activity.
//!
//! Owns the columns, which `top` shows as well, and the iteration over the pages of a long list.

use super::call::Call;
use super::link::Link;
use super::opts::JSON;
use super::out::Out;
use super::problem::{Problem, DONE};
use super::yaml::{self, Figures};
use crate::shared::json;

/// The headings of the columns, and the server's keys.
pub const COLUMNS: [(&str, &str); 11] = [
    ("number", "number"),
    ("client", "client"),
    ("address", "address"),
    ("protocol", "protocol"),
    ("state", "state"),
    ("job", "job"),
    ("tube", "job-tube"),
    ("for", "job-age"),
    ("left", "time-left"),
    ("progress", "progress"),
    ("idle", "idle"),
];

/// The maximum number of connections in one reply.
const PAGE: usize = 1000;

/// Passes on each connection that the server lists, sorted by number.
pub fn each(link: &mut Link, act: &mut dyn FnMut(Figures) -> Result<(), Problem>) -> Result<(), Problem> {
    let mut above = 0;
    loop {
        let reply = link.expect(&format!("list-connections {above} {PAGE}"), "OK")?;
        let page = yaml::objects(&reply.body);
        let last = page.last().map(|figures| figures.number("number"));
        let is_full = page.len() == PAGE;
        page.into_iter().try_for_each(&mut *act)?;
        match last.filter(|_| is_full) {
            Some(last) => above = last,
            None => return Ok(()),
        }
    }
}

/// Returns the columns of a connection, with a dash for each empty value.
pub fn row(figures: &Figures) -> Vec<String> {
    let text = |key: &str| Some(figures.text(key)).filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    COLUMNS.iter().map(|(_, key)| text(key)).collect()
}

pub fn run(call: &Call, out: &mut Out) -> Result<u8, Problem> {
    let mut link = Link::open(call)?;
    let mut rows = Vec::new();
    each(&mut link, &mut |figures| {
        if call.has(&JSON) {
            return out.line(&json::object(|json| figures.write(json)));
        }
        rows.push(row(&figures));
        Ok(())
    })?;
    if !call.has(&JSON) {
        out.table(&COLUMNS.map(|(head, _)| head), &rows)?;
    }
    Ok(DONE)
}
