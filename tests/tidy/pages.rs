//! Checks that each man page has the usual header, names related pages, and refers only to pages that exist.

use std::fs;

use super::complain;

#[test]
fn every_page_has_a_header_and_names_related_pages() {
    let names = fs::read_dir("man").expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let names: Vec<String> = names.map(|name| name.into_string().expect("a plain name")).collect();
    let mut problems = Vec::new();
    for name in &names {
        let page = fs::read_to_string(format!("man/{name}")).expect("a page");
        let (stem, section) = name.rsplit_once('.').expect("a section");
        let title = format!(".Dt {} {section}", stem.to_uppercase());
        let header = [&title, ".Os beanpole", ".Sh NAME", &format!(".Nm {stem}")];
        if !page.starts_with(".Dd ") || !page.lines().skip(1).take(4).eq(header) {
            problems.push(format!("{name}: the header is not {header:?}"));
        }
        if !page.contains("\n.Sh SEE ALSO\n.Xr ") {
            problems.push(format!("{name}: no related pages"));
        }
        for other in page.lines().filter_map(|line| line.strip_prefix(".Xr beanpole")) {
            let mut words = other.split(' ');
            let file = format!("beanpole{}.{}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if !names.contains(&file) || file == *name {
                problems.push(format!("{name}: invalid reference to {file}"));
            }
        }
    }
    complain(problems);
}
