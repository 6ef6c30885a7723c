//! Tests TLS from the clients' perspective: versions, certificates of servers and clients, split records, and hostile
//! peers.
//!
//! Requires openssl, which creates the certificates. The clients are `openssl s_client` and, for misbehavior, rustls.
//! The server is the real program.

mod daemon;

#[path = "memory/growth.rs"]
mod growth;

mod tls {
    mod bytes;
    mod certificates;
    mod client;
    mod crowd;
    mod files;
    mod idle;
    mod memory;

    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{crypto, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use super::daemon::{Daemon, Folder, PATIENCE};

    fn openssl(folder: &Folder, arguments: &[&str]) {
        let done = Command::new("openssl").args(arguments).current_dir(folder.file("")).output().expect("openssl");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    #[derive(Clone, Copy)]
    struct CertificateSpec<'a> {
        /// The name of the files `NAME.pem` and `NAME.key` without the extension.
        name: &'a str,
        /// The name of the certificate that signs this certificate. It equals `name` if the certificate is self-signed.
        by: &'a str,
        subject: &'a str,
        /// The subject alternative name, for example `DNS:localhost`. It is empty for an authority, and `none` for a
        /// client's certificate, which has no alternative name.
        alternative: &'a str,
        rsa: bool,
        expired: bool,
    }

    const EC: CertificateSpec = CertificateSpec {
        name: "server",
        by: "ca",
        subject: "/CN=x",
        alternative: "DNS:localhost",
        rsa: false,
        expired: false,
    };

    fn make(folder: &Folder, spec: CertificateSpec) {
        let CertificateSpec { name, by, subject, alternative, rsa, expired } = spec;
        let (key, request, pem) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
        if rsa {
            openssl(folder, &["genrsa", "-out", &key, "2048"]);
        } else {
            openssl(folder, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        }
        let extensions = match alternative {
            "" => "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n".to_owned(),
            "none" => "keyUsage=digitalSignature\n".to_owned(),
            names => format!("subjectAltName={names}\n"),
        };
        std::fs::write(folder.file("extensions"), extensions).expect("a file");
        openssl(folder, &["req", "-new", "-key", &key, "-out", &request, "-subj", subject]);
        let (ca, ca_key) = (format!("{by}.pem"), format!("{by}.key"));
        let mut sign = vec!["x509", "-req", "-in", &request, "-out", &pem, "-extfile", "extensions"];
        if expired {
            // openssl 3.0 cannot set the start of the validity period, so this period ends before it starts. Servers
            // and clients refuse this certificate in the same way as an expired one.
            sign.extend(["-days", "-1"]);
        } else {
            sign.extend(["-days", "3"]);
        }
        if by == name {
            sign.extend(["-signkey", &key]);
        } else {
            sign.extend(["-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"]);
        }
        openssl(folder, &sign);
    }

    /// Creates a directory with an authority, and with a server certificate that the authority has signed.
    fn folder() -> Folder {
        let folder = Folder::new();
        make(&folder, CertificateSpec { name: "ca", by: "ca", subject: "/CN=authority", alternative: "", ..EC });
        make(&folder, EC);
        folder
    }

    fn path(folder: &Folder, name: &str) -> String {
        folder.file(name).to_str().expect("a name").to_owned()
    }

    fn start(folder: &Folder, more: &[&str]) -> Daemon {
        let (certificate, key) = (path(folder, "server.pem"), path(folder, "server.key"));
        let own = ["-l", "tls:127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key];
        Daemon::start(&[&own, more].concat())
    }

    fn address(daemon: &Daemon, protocol: &str) -> String {
        let names = daemon.names();
        let fits = |name: &&String| {
            name.starts_with("tls:") && name.contains('(') != protocol.is_empty() && name.contains(protocol)
        };
        let name = names.iter().find(fits).unwrap_or_else(|| panic!("no address of {protocol:?} in {names:?}"));
        name.trim_start_matches("tls:").split(' ').next().expect("an address").to_owned()
    }

    /// Returns the configuration of a client. If `own` is given, the client has the certificate with this name.
    fn config(folder: &Folder, own: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(folder.file("ca.pem")).expect("a certificate")).expect("an authority");
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::pem_file_iter(folder.file(&format!("{name}.pem"))).expect("a file");
                let chain = chain.collect::<Result<Vec<_>, _>>().expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(folder.file(&format!("{name}.key"))).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }

    type Secure = StreamOwned<ClientConnection, TcpStream>;

    fn connect(folder: &Folder, address: &str, own: Option<&str>) -> Secure {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.set_nodelay(true).expect("an option");
        let name = ServerName::try_from("localhost").expect("a name");
        StreamOwned::new(ClientConnection::new(config(folder, own), name).expect("a session"), stream)
    }

    /// Sends a line. Returns the first line of the reply without the line ending, or the error.
    fn ask(link: &mut (impl Read + Write), line: &str) -> Result<String, std::io::Error> {
        link.write_all(format!("{line}\r\n").as_bytes())?;
        read_line(link)
    }

    fn read_line(link: &mut impl Read) -> Result<String, std::io::Error> {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let mut byte = [0];
            if link.read(&mut byte)? == 0 {
                break;
            }
            answer.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
    }

    /// Runs `openssl s_client`, and returns its output. A line `Q` in `input` ends the program.
    fn s_client(folder: &Folder, address: &str, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", address, "-servername", "localhost"]).args(arguments);
        command.current_dir(folder.file("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("openssl");
        let mut pipe = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        let writer = std::thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("the output");
        writer.join().expect("a writer");
        [output.stdout, output.stderr].iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    /// Runs `openssl s_client`, and returns its output. A step is an input line, and the output to wait for before the
    /// next step. The input lines `R` and `K` are commands to openssl.
    fn s_client_steps(folder: &Folder, address: &str, version: &str, steps: &[(&str, &str)]) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec openssl s_client -connect "$0" "$1" 2>&1"#, address, version]);
        command.current_dir(folder.file("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("openssl");
        let (mut pipe, mut out) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut output = String::new();
        let mut read_until = |word: &str| {
            let mut byte = [0];
            while (word.is_empty() || !output.ends_with(word)) && out.read(&mut byte).expect("a pipe") == 1 {
                output.push(char::from(byte[0]));
            }
        };
        // `s_client` reads its input only after the handshake.
        read_until(if version == "-tls1_2" { "Extended master secret" } else { "Verification" });
        for (line, answer) in steps {
            let _ = pipe.write_all(line.as_bytes());
            read_until(answer);
        }
        drop(pipe);
        read_until("");
        let _ = child.wait();
        output
    }

    fn replace(from: &Path, to: &Path) {
        std::fs::rename(from, to).expect("renamed files");
    }
}
