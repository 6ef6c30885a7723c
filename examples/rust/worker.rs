//! Sends mails. A job has up to 5 tries, with pauses of 10, 20, 40 and 80 seconds between them. If the last try fails,
//! the server buries the job in the tube `mail-dead`.

use std::env;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use beanpole::{Client, ClientError};

fn send(address: &[u8], touch: impl FnOnce() -> Result<(), ClientError>) -> Result<(), Box<dyn Error>> {
    let address = String::from_utf8_lossy(address);
    if !address.contains('@') {
        return Err(format!("not an address: {address}").into());
    }
    touch()?; // Restarts the time to run (60 s). During long work, call this repeatedly.
    println!("sent to {address}");
    Ok(())
}

fn work(address: &str) -> Result<(), ClientError> {
    let mut queue = Client::connect(address)?;
    queue.set_tube("mail", "try:5:10 dead:mail-dead")?;
    queue.watch("mail")?;
    queue.ignore("default")?;
    while let Some(job) = queue.reserve(None)? {
        let done = match send(&job.body, || queue.touch(job.id)) {
            Ok(()) => queue.delete(job.id),
            Err(reason) => queue.fail(job.id, 65536, reason.to_string().as_bytes()).map(drop),
        };
        match done {
            Err(ClientError::Refused(reply)) if reply == "NOT_FOUND" => {
                eprintln!("job {}: no longer reserved by this worker", job.id);
            }
            other => other?,
        }
    }
    Ok(())
}

fn main() -> Result<(), ClientError> {
    let address = env::var("BEANPOLE_SERVER").unwrap_or_else(|_| "127.0.0.1:11300".to_owned());
    loop {
        match work(&address) {
            Err(ClientError::Io(error)) => eprintln!("{error}; connecting again"),
            other => return other,
        }
        sleep(Duration::from_secs(1));
    }
}
