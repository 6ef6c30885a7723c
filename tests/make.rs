//! Tests the Makefile in unusual environments: missing tools must be reported in one line, and odd paths must work.
//!
//! Also checks `make uninstall`, the contents of packages, the list of test programs, and the scripts that run tests:
//! with fake tools, they must fail and skip as documented. Must not compile anything.

mod daemon;

use std::fs;
use std::path::Path;
use std::process::Command;

use daemon::Folder;

/// Another process writes the script: if this process wrote it, a process that another test starts at this moment would
/// inherit the open file, and a shell would run the next program in the PATH instead of a script that is still open.
fn script(path: &Path, text: &str) {
    const WRITE: &str = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
    assert!(Command::new("/bin/sh").args(["-c", WRITE]).arg(path).arg(text).status().expect("a shell").success());
}

/// Runs `pkg/toolchain`. `cargo` is the name or path of cargo. In the PATH, the fake programs `tools` precede the real
/// programs in `path`. Returns `true` if the run succeeded, and the contents of stderr.
fn toolchain(cargo: &str, tools: &[(&str, &str)], path: &str) -> (bool, String) {
    let folder = Folder::new();
    tools.iter().for_each(|(name, text)| script(&folder.file(name), text));
    let mut command = Command::new("/bin/sh");
    command.args(["pkg/toolchain", cargo, "1.85"]).env_remove("RUSTFLAGS");
    let run = command.env("PATH", format!("{}:{path}", folder.file("").display())).output().expect("a shell");
    (run.status.success(), String::from_utf8(run.stderr).expect("text"))
}

#[test]
fn an_unusable_toolchain_is_reported_in_one_line() {
    let (old, new) = ("echo 'cargo 1.63.0 (fd9c4297c 2022-07-01)'", "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'");
    let no_linker = [("cargo", new), ("cc", "exit 1"), ("mktemp", "echo /dev/null"), ("rm", ":")];
    for (cargo, tools, path, words) in [
        ("no-such-cargo", &[][..], "/usr/bin:/bin", &["cargo is missing", "1.85 or later", "rustup"][..]),
        ("cargo", &[("cargo", old)], "/usr/bin:/bin", &["Rust 1.63 is too old", "1.85 or later", "rustup"]),
        ("cargo", &[("cargo", "echo hello")], "/usr/bin:/bin", &["is not cargo", "hello"]),
        ("cargo", &no_linker, "/usr/bin:/bin", &["cc cannot link", "libc6-dev"]),
    ] {
        let (well, output) = toolchain(cargo, tools, path);
        assert!(!well && output.lines().count() == 1, "{output}");
        words.iter().for_each(|word| assert!(output.contains(word), "no \"{word}\": {output}"));
    }
    for fits in ["1.85.0", "1.100.2", "2.0.1"] {
        let (well, output) =
            toolchain("cargo", &[("cargo", &format!("echo 'cargo {fits}'")), ("cc", ":")], "/usr/bin:/bin");
        assert!(well && output.is_empty(), "{fits}: {output}");
    }
}

/// Returns the program and the filter of each `cargo test` command in `text`. The program of unit tests is `--lib`.
/// Filters after `--skip` are included.
fn test_filters(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\n", " ");
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    let mut found = Vec::new();
    for line in text.lines() {
        let (mut program, mut words) = ("", line.split_whitespace().peekable());
        while let Some(word) = words.next() {
            let filters = match word {
                "--lib" => {
                    program = word;
                    words.next_if(|next| next.starts_with(char::is_alphabetic))
                }
                "--test" => {
                    program = words.next().expect("a test program");
                    words.next_if(|next| next.starts_with(char::is_alphabetic))
                }
                // Makefiles add `--skip` to each word of a variable: `$(addprefix --skip ,$(NAMES))`.
                "--skip" => words.next().and_then(|next| match next.strip_prefix(",$(") {
                    Some(name) => value(name.trim_end_matches(')')),
                    None => Some(next),
                }),
                _ => None,
            };
            let filters = filters.into_iter().flat_map(str::split_whitespace);
            found.extend(filters.map(|filter| (program.to_owned(), filter.to_owned())));
        }
    }
    found
}

/// Returns the names of all tests in the program, including their modules. The program of unit tests is `--lib`.
fn test_names(program: &str) -> Vec<String> {
    let (folder, mut paths) = (format!("tests/{program}"), Vec::new());
    if program == "--lib" {
        files(Path::new("src"), &mut paths);
    } else {
        paths.push(format!("{folder}.rs"));
        if Path::new(&folder).exists() {
            files(Path::new(&folder), &mut paths);
        }
    }
    let mut names = Vec::new();
    for path in paths.iter().filter(|path| path.ends_with(".rs")) {
        let module = path.trim_start_matches(&folder).trim_start_matches("src").trim_end_matches(".rs");
        let mut is_test = false;
        for line in fs::read_to_string(path).expect("a source").lines().map(str::trim_start) {
            is_test |= line == "#[test]";
            if let Some(function) = line.strip_prefix("fn ").filter(|_| is_test) {
                names.push(format!("{module}/{function}").replace('/', "::"));
                is_test = false;
            }
        }
    }
    names
}

/// `cargo test` succeeds even if a filter matches no test.
#[test]
fn every_test_that_a_target_names_exists() {
    let is_known = |(program, filter): &(String, String)| {
        test_names(program).iter().any(|name| name.split('(').next().unwrap_or_default().contains(filter))
    };
    let mut found = Vec::new();
    for path in ["Makefile", "pkg/tests.mk", "pkg/packages.mk", ".ci/run"] {
        found.extend(test_filters(&fs::read_to_string(path).expect("the targets")));
    }
    found.iter().for_each(|filter| assert!(is_known(filter), "no test {} in {}", filter.1, filter.0));
    let of = |program: &str, filter: &str| (program.to_owned(), filter.to_owned());
    for known in [
        of("--lib", "every_short_sequence_of_calls"),
        of("--lib", "server::"),
        of("--lib", "as_many_clients_are_dropped"),
        of("durability", "kill"),
        of("gearman", "updates_for_very_many"),
        of("sim", "requested_seeds"),
        of("cluster", "confirmed_changes_survive"),
    ] {
        assert!(found.contains(&known), "{known:?} is not in {found:?}");
    }
    let renamed =
        test_filters("\tcargo test --lib small_world -- --nocapture\n\tcargo test --test sim -- --skip wanted\n");
    assert_eq!(renamed, [of("--lib", "small_world"), of("sim", "wanted")]);
    assert!(!renamed.iter().any(is_known), "{renamed:?}");
}

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path.display().to_string());
        }
    }
    found.sort();
}

fn make(arguments: &[String]) -> String {
    let run = Command::new("make").args(arguments).output().expect("make");
    let output = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "make {arguments:?}: {output}");
    output
}

/// `echo` replaces cargo, and prints the arguments of cargo-mutants.
#[test]
fn mutants_of_a_promise_are_tested_by_the_tests_of_the_promise() {
    let mutants = |promise: &str| {
        let arguments = ["mutants", "CARGO=echo", "MAKEFLAGS=", &format!("PROMISE={promise}")];
        let run = Command::new("make").args(arguments).output().expect("make");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (run.status.success(), text(&run.stdout), text(&run.stderr))
    };
    for (promise, words) in [
        ("P21", &["--file src/server/memory.rs", " -- ", "--test=hostile", "--test=memory"][..]),
        ("P28", &["--file src/engine/rules/concurrency.rs", " -- ", "--test=conversations"]),
        ("P33", &["--file src/cluster/active.rs", " -- ", "--test=cluster"]),
        ("", &["--file src/binlog/**"]),
    ] {
        let (well, out, err) = mutants(promise);
        let last = out.lines().last().unwrap_or_default();
        assert!(well && words.iter().all(|word| last.contains(word)), "{promise}: {out}{err}");
        assert!(!last.contains("=oracle") && promise.is_empty() != last.contains("--test="), "{promise}: {last}");
    }
    for unknown in ["P0", "P99", "12", "P1 P2"] {
        let (well, out, err) = mutants(unknown);
        assert!(!well && !out.contains("--file") && err.contains("no file enforces this promise"), "{out}{err}");
    }
}

#[test]
fn uninstall_removes_all_installed_files() {
    let folder = Folder::new();
    let odd = folder.file("an o'dd $place");
    fs::create_dir(&odd).unwrap();
    let program = odd.join("beanpole");
    assert!(Command::new("cp").arg(daemon::program()).arg(&program).status().expect("cp").success());
    let root = odd.join("root");
    // In the value of a make variable, `$$` is a dollar sign.
    let escaped = |path: &Path| path.display().to_string().replace('$', "$$");
    let arguments = |word: &str| {
        vec![
            word.to_owned(),
            format!("DESTDIR={}", escaped(&root)),
            format!("PROGRAM={}", escaped(&program)),
            "PREFIX=/usr".to_owned(),
            "SYSTEMDUNITDIR=/lib/systemd/system".to_owned(),
            "GEARMAND=1".to_owned(),
            "MAKEFLAGS=".to_owned(),
        ]
    };
    make(&arguments("install"));
    let mut found = Vec::new();
    files(&root, &mut found);
    for name in [
        "usr/bin/beanpole",
        "usr/sbin/gearmand",
        "usr/share/man/man8/beanpole.8",
        "usr/share/man/man7/beanpole-migrate.7",
        "lib/systemd/system/beanpole.service",
        "etc/sysusers.d/beanpole.conf",
        "etc/default/beanpole",
    ] {
        assert!(found.contains(&root.join(name).display().to_string()), "no {name} in {found:?}");
    }
    let unit = fs::read_to_string(root.join("lib/systemd/system/beanpole.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/beanpole ") && !unit.contains("@BINDIR@"), "{unit}");
    fs::write(root.join("etc/default/beanpole"), "changed").unwrap();
    make(&arguments("install"));
    assert_eq!(fs::read_to_string(root.join("etc/default/beanpole")).unwrap(), "changed");
    make(&arguments("uninstall"));
    let mut left = Vec::new();
    files(&root, &mut left);
    assert_eq!(left, [root.join("etc/default/beanpole").display().to_string()]);
}

/// Builds and installs the Debian package in a copy of the source tree. A script replaces cargo and the program.
#[test]
fn a_debian_package_is_built_in_its_own_directory() {
    let folder = Folder::new();
    let (tree, elsewhere, tools) = (folder.file("tree"), folder.file("elsewhere"), folder.file("tools"));
    [&tree.join("debian"), &tools].into_iter().for_each(|path| fs::create_dir_all(path).unwrap());
    let copied = Command::new("cp").args(["-r", "Makefile", "Cargo.toml", "pkg", "man"]).arg(&tree).status();
    assert!(copied.expect("cp").success());
    let build = "[ \"$1\" != --version ] || echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'; [ \"$1\" = build ] || exit 0
        mkdir -p \"$CARGO_TARGET_DIR/release\" && cd \"$CARGO_TARGET_DIR/release\" && cp \"$0\" beanpole";
    script(&tools.join("cargo"), build);
    let mut command = Command::new("make");
    command.args(["-f", "pkg/debian/rules", "override_dh_auto_build", "override_dh_auto_install"]).current_dir(&tree);
    command.env("PATH", format!("{}:/usr/bin:/bin", tools.display())).env("CARGO", tools.join("cargo"));
    for name in ["MAKEFLAGS", "BEANPOLE_PROGRAM", "BEANPOLE_COMPLETER"] {
        command.env_remove(name);
    }
    let run = command.env("CARGO_TARGET_DIR", &elsewhere).output().expect("make");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let packed = fs::read_to_string(tree.join("debian/beanpole/usr/bin/beanpole")).expect("a program");
    assert!(packed.contains(build) && tree.join("target/release/beanpole").exists() && !elsewhere.exists());
}

/// Since version 3.05, sysvinit-utils contains the functions for init scripts, which lsb-base contained before.
#[test]
fn the_debian_package_can_be_installed_with_older_init_functions() {
    let control = fs::read_to_string("pkg/debian/control").unwrap();
    assert!(control.contains("sysvinit-utils (>= 3.05) | lsb-base\n"), "{control}");
    assert!(fs::read_to_string("pkg/sysv/beanpole").unwrap().contains("\n. /lib/lsb/init-functions\n"));
}

/// Packages must contain only files from the staging directory. Other files have the modification time of the checkout
/// and modes that depend on the umask, so that two builds of the same commit would differ.
#[test]
fn packages_contain_only_files_with_the_time_of_the_commit() {
    let settings = fs::read_to_string("pkg/nfpm.yaml").unwrap();
    let packed = settings.lines().filter_map(|line| {
        let (name, path) = line.trim_start_matches([' ', '-']).split_once(": ")?;
        ["src", "preinstall", "postinstall", "preremove", "postremove"].contains(&name).then_some(path)
    });
    let outside: Vec<_> = packed.filter(|path| !path.starts_with("${STAGE}/")).collect();
    assert!(outside.is_empty(), "{outside:?}");
    let recipe = fs::read_to_string("pkg/packages.mk").unwrap();
    assert!(recipe.contains("\nchmod -R u=rwX,go=rX '$(STAGE)'\n"), "packages depend on the umask");
}

#[test]
fn run_advises_the_right_address() {
    for (given, advice) in [
        (&["PORT="][..], "nc -C 127.0.0.1 11300"),
        (&["PORT=7"], "nc -C 127.0.0.1 7"),
        (&["PORT=0"], "nc -C HOST PORT, as logged below"),
        (&["ARGS=-p 11305"], "nc -C HOST PORT, as logged below"),
    ] {
        let mut command = Command::new("make");
        let run = command.args(["-n", "run", "PROGRAM=/bin/true"]).args(given).output().expect("make");
        let output = String::from_utf8(run.stdout).expect("text");
        assert!(output.contains(advice), "{given:?}: {output}{}", String::from_utf8_lossy(&run.stderr));
    }
}

fn copy(from: &str, to: &Path) {
    fs::create_dir_all(to.parent().expect("a directory")).unwrap();
    assert!(Command::new("cp").args(["-r", from]).arg(to).status().expect("cp").success());
}

/// Runs `command` with the fake programs `tools`, which precede the real programs. Returns `true` if the run succeeded,
/// and its output.
fn faked(command: &mut Command, folder: &Path, tools: &[(&str, &str)]) -> (bool, String) {
    let place = folder.join("tools");
    fs::create_dir_all(&place).unwrap();
    tools.iter().for_each(|(name, text)| script(&place.join(name), text));
    command.env("PATH", format!("{}:/usr/bin:/bin", place.display()));
    for name in ["MAKEFLAGS", "CARGO", "CARGO_TARGET_DIR", "REQUIRED", "GO_CLIENTS"] {
        command.env_remove(name);
    }
    let run = command.output().expect("a program");
    (run.status.success(), format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr)))
}

/// The source tarball contains the last commit, but the other packages and programs contain the working tree.
#[test]
fn only_a_tagged_commit_without_changes_is_released() {
    let folder = Folder::new();
    let tree = folder.file("tree");
    ["Makefile", "Cargo.toml", "pkg"].into_iter().for_each(|name| copy(name, &tree.join(name)));
    fs::write(tree.join(".gitignore"), "target/\n").unwrap();
    let old = tree.join("target/dist/old");
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@packages.invalid"]).args(words);
        command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
        let run = command.current_dir(&tree).output();
        run.is_ok_and(|run| run.status.success())
    };
    if !git(&["init", "-q"]) {
        return eprintln!("skipped: git is missing");
    }
    let commit = |changes: &str| {
        fs::write(tree.join("CHANGELOG.md"), changes).unwrap();
        assert!(git(&["add", "."]) && git(&["commit", "-qm", "x"]));
    };
    let version = env!("CARGO_PKG_VERSION");
    // `MAKE=false` ends the run at the first step of a release.
    let release = |trial: &str| {
        fs::create_dir_all(old.parent().unwrap()).unwrap();
        fs::write(&old, "").unwrap();
        let mut command = Command::new("make");
        command.args(["release", "MAKE=false", "TARGET_DIR=target", trial, &format!("VERSION={version}")]);
        let command = command.current_dir(&tree);
        faked(command, &folder.file(""), &[("cargo", "exit 1")])
    };
    let undated = format!("## [{version}] - Unreleased\n");
    for changes in ["## [Unreleased]\n".to_owned(), undated.clone(), format!("## [{version}] - 2026-01-01\n")] {
        commit(&changes);
        let (well, output) = release("TRIAL=");
        assert!(!well && output.contains("the commit is not tagged") && old.exists(), "{output}");
        let (_, output) = release("TRIAL=1");
        assert!(!output.contains("the commit is not tagged") && !old.exists(), "{output}");
    }
    let tag = format!("v{version}");
    commit(&undated);
    assert!(git(&["tag", &tag]) && release("TRIAL=").1.contains("has no date") && git(&["tag", "-d", &tag]));
    commit(&format!("## [{version}] - 2026-01-02\n"));
    assert!(git(&["tag", &tag]));
    let refusal = "the working tree has uncommitted changes";
    let (_, output) = release("TRIAL=");
    assert!(!output.contains(refusal) && !old.exists(), "{output}");
    for (name, mark) in [("src", "?? src"), ("Cargo.toml", " M Cargo.toml")] {
        fs::write(tree.join(name), "changed").unwrap();
        let (well, output) = release("TRIAL=");
        assert!(!well && output.contains(refusal) && output.contains(mark) && old.exists(), "{output}");
    }
}

/// `echo` replaces cargo, and prints its arguments.
#[test]
fn figures_are_published_with_the_commit_of_their_measurement() {
    let folder = Folder::new();
    let publish = |more: &str| {
        let target = format!("CARGO_TARGET_DIR={}", folder.file("").display());
        let mut make = Command::new("make");
        make.args(["-s", "publish", "CARGO=echo", &target, more]).env_remove("MAKEFLAGS");
        let run = make.output().expect("make");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (run.status.success(), text(&run.stdout), text(&run.stderr))
    };
    let (well, out, err) = publish("COMMIT=");
    assert!(!well && !out.contains("picture") && err.contains("set COMMIT"), "{out}{err}");
    fs::write(folder.file("figures.commit"), "1234abc\n").unwrap();
    for (more, commit) in [("COMMIT=5678def", "5678def"), ("ARGS=", "1234abc")] {
        let (well, out, err) = publish(more);
        let lines: Vec<&str> = out.lines().collect();
        assert!(well && lines.len() == 2, "{out}{err}");
        assert!(lines[0].contains("/figures.md ") && lines[0].ends_with(&format!("/RESULTS.md {commit}")), "{out}");
        assert!(lines[1].contains("/RESULTS.md ") && lines[1].ends_with("/benches/figures.svg"), "{out}");
    }
}

#[test]
fn a_release_without_one_of_its_files_is_reported() {
    let folder = Folder::new();
    let out = folder.file("dist");
    fs::create_dir_all(&out).unwrap();
    let set = |name: &str, text: &str| fs::write(out.join(name), text).unwrap();
    let source = concat!("beanpole-", env!("CARGO_PKG_VERSION"));
    let version = env!("CARGO_PKG_VERSION");
    let targets = [
        "x86_64-unknown-linux-musl",
        "i686-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "armv7-unknown-linux-gnueabihf",
        "riscv64gc-unknown-linux-gnu",
    ];
    let mut names = targets.map(|target| format!("{source}-{target}")).to_vec();
    names.extend([".tar.gz", ".tar.gz.sha256", "-recipes.tar.gz", ".cdx.json"].map(|end| format!("{source}{end}")));
    names.extend(["NOTES.md", "SHA256SUMS", "LICENSE", "third-party-licenses", "BUILDINFO"].map(str::to_owned));
    let packages = ["beanpole_", "beanpole-as-beanstalkd_", "beanpole-as-gearmand_"];
    names.extend(packages.map(|name| format!("{name}{version}-1_amd64.deb")));
    names.extend([format!("{source}-1.x86_64.rpm"), format!("beanpole_{version}_x86_64.apk")]);
    names.iter().for_each(|name| set(name, "x"));
    let complete = || {
        let mut command = Command::new("make");
        faked(command.args(["complete", &format!("OUT={}", out.display())]), &folder.file(""), &[("cargo", "exit 1")])
    };
    let (well, output) = complete();
    assert!(well, "{output}");
    for name in &names {
        set(name, "");
        let (well, output) = complete();
        assert!(!well && output.contains("the release lacks "), "{name}: {output}");
        set(name, "x");
    }
    // `release` checks its result.
    let rules = fs::read_to_string("pkg/packages.mk").expect("the targets");
    let release = rules.split("\nrelease: ").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("the target");
    assert!(release.trim_end().ends_with("$(MAKE) complete"), "{release}");
}

/// Only the owner can replace the placeholders. CONTRIBUTING.md lists them.
#[test]
fn the_list_for_the_owner_names_each_placeholder() {
    let page = fs::read_to_string("CONTRIBUTING.md").expect("a document");
    let list = page.split("Only the owner of the project can supply").nth(1).expect("the list");
    let list = list.split("\n## ").next().expect("the list");
    let mut sources = Vec::new();
    files(Path::new("pkg"), &mut sources);
    let mut count = 0;
    for path in sources.iter().filter(|path| !path.starts_with("pkg/test/")) {
        // Other files, such as icons, contain no text.
        let text = fs::read_to_string(path).unwrap_or_default();
        let folder = path.splitn(3, '/').take(2).collect::<Vec<_>>().join("/");
        for (mark, name) in [("@URL@", "@URL@"), ("\n# Maintainer: ", "Maintainer"), ("\nPKG_MAINTAINER", "Maintainer")]
        {
            if text.contains(mark) {
                assert!(list.contains(name) && list.contains(&folder), "{path}: the list lacks {name} in {folder}");
                count += 1;
            }
        }
        let default = text.lines().filter(|line| line.contains("packages.invalid"));
        for variable in default.filter_map(|line| line.split(' ').next()) {
            assert!(list.contains(&format!("`{variable}`")), "{path}: the list lacks {variable}");
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

/// Fakes all tools of `.ci/run`, so that all sections pass or are skipped immediately.
#[test]
fn all_checks_together_must_end_within_the_limit() {
    let folder = Folder::new();
    let tree = folder.file("tree");
    [".ci", "Cargo.toml"].into_iter().for_each(|name| copy(name, &tree.join(name)));
    let rust = r#"[ "$1 $2" != "toolchain list" ] || sed -n 's/^rust-version = "\(.*\)"/\1-x/p' Cargo.toml"#;
    let mut tools: Vec<(&str, &str)> = vec![("rustup", rust), ("id", "echo 1000")];
    tools.extend(["make", "cargo", "cargo-deny", "mandoc", "shellcheck", "valgrind"].map(|name| (name, "exit 0")));
    for (words, limit, is_late) in [(&[][..], "-1", false), (&["all"], "-1", true), (&["all"], "3600", false)] {
        let mut command = Command::new("bash");
        command.arg(tree.join(".ci/run")).args(words).env("LIMIT", limit);
        let (well, output) = faked(&mut command, &folder.file(""), &tools);
        assert_eq!((well, output.contains("the checks took more than")), (!is_late, is_late), "{words:?}: {output}");
        assert!(output.contains("==== ended after "), "{output}");
    }
    tools[2] = ("make", "exit 7");
    let (well, output) = faked(Command::new("bash").arg(tree.join(".ci/run")), &folder.file(""), &tools);
    assert!(!well && output.contains("FAILED with status 7") && output.contains("==== ended after "), "{output}");
}

/// A defect of the package must fail the checks even if its message mentions the registry or the network.
#[test]
fn a_failed_publication_is_skipped_only_without_the_registry() {
    let folder = Folder::new();
    let tree = folder.file("tree");
    [".ci", "Cargo.toml"].into_iter().for_each(|name| copy(name, &tree.join(name)));
    let rust = r#"[ "$1 $2" != "toolchain list" ] || sed -n 's/^rust-version = "\(.*\)"/\1-x/p' Cargo.toml"#;
    for (failing, passes, is_skipped) in
        [("", true, false), ("update", true, true), ("publish", false, false), ("package update", false, false)]
    {
        let problem = "the registry index and the network do not accept this package";
        let cargo = format!("case ' {failing} ' in *\" $1 \"*) echo '{problem}' >&2; exit 101 ;; esac");
        let mut tools = vec![("rustup", rust), ("id", "echo 1000"), ("cargo", cargo.as_str())];
        tools.extend(["make", "cargo-deny", "mandoc", "shellcheck", "valgrind"].map(|name| (name, "exit 0")));
        let (well, output) = faked(Command::new("bash").arg(tree.join(".ci/run")), &folder.file(""), &tools);
        assert_eq!((well, output.contains("skipped: cargo publish")), (passes, is_skipped), "{failing}: {output}");
        assert_eq!(output.contains("==== crate: FAILED with status 101"), !passes, "{failing}: {output}");
    }
}

#[test]
fn go_examples_are_skipped_only_if_no_proxy_can_be_reached() {
    let folder = Folder::new();
    let tree = folder.file("tree");
    ["tests/compat/examples", "tests/compat/go_clients"].into_iter().for_each(|name| copy(name, &tree.join(name)));
    let python = r#"[ "$2" != venv ] || { mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; }"#;
    for (go, required, passes) in [
        ("dial tcp: lookup proxy.golang.org: no such host", "1", true),
        ("module lookup disabled by GOPROXY=off", "1", true),
        ("reading https://proxy.golang.org/x/@v/v1.2.0.info: 404 Not Found", "1", false),
        ("reading https://proxy.golang.org/x/@v/v1.2.0.info: 404 Not Found", "", true),
    ] {
        let go = format!("[ \"$1\" != get ] || {{ echo 'go: {go}' >&2; exit 1; }}");
        let mut tools = vec![("go", go.as_str()), ("python3", python)];
        tools.extend(["node", "ruby", "php", "sh", "cargo"].map(|name| (name, "exit 0")));
        let mut command = Command::new("bash");
        // `faked` removes the variable from the environment of this test.
        command.arg("-c").arg("REQUIRED=$1 exec bash tests/compat/examples").arg("bash").arg(required);
        let (well, output) = faked(command.current_dir(&tree), &folder.file(""), &tools);
        assert_eq!(well, passes, "{output}");
        assert!(output.contains("the Go clients are not tested: go: "), "{output}");
        assert_eq!(output.contains("skipped: the example in Go"), passes, "{output}");
    }
}

/// `make test` starts each test program by name, and must exclude the same programs as `cargo test`. With `STATIC=1`,
/// `make test` must run only the test programs that start the beanpole program.
#[test]
fn make_test_runs_what_cargo_test_runs() {
    let manifest = fs::read_to_string("Cargo.toml").expect("a manifest");
    let excluded: Vec<&str> = manifest
        .split("[[")
        .filter(|part| {
            part.starts_with("test]]") && (part.contains("test = false") || part.contains("required-features"))
        })
        .map(|part| part.split('"').nth(1).expect("a name"))
        .collect();
    let list = |more| make(&["-s", "test-list", "TLS=", more].map(str::to_owned));
    let (all, starters) = (list("STATIC="), list("STATIC=1"));
    for path in fs::read_dir("tests").expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        if path.is_file() {
            let is_included = !excluded.contains(&name);
            let starts = fs::read_to_string(&path).expect("a file").contains("mod daemon;");
            for (list, expected) in [(&all, is_included), (&starters, is_included && starts)] {
                assert_eq!(list.split_whitespace().any(|word| word == name), expected, "{name}: {list}");
            }
        }
    }
}
