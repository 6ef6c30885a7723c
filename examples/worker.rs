//! Sends mails. The server retries what fails: 5 tries, 10, 20, 40 and 80 seconds apart, then the tube `mail-dead`.

use std::env;

use beanpole::{Client, ClientError};

fn send(address: &[u8]) -> Result<(), String> {
    let address = String::from_utf8_lossy(address);
    if !address.contains('@') {
        return Err(format!("not an address: {address}"));
    }
    println!("sent to {address}");
    Ok(())
}

fn main() -> Result<(), ClientError> {
    let address = env::var("BEANPOLE_SERVER").unwrap_or_else(|_| "127.0.0.1:11300".to_owned());
    let mut queue = Client::connect(address)?;
    queue.set_tube("mail", "try:5:10 dead:mail-dead")?;
    queue.watch("mail")?;
    queue.ignore("default")?;
    while let Some(job) = queue.reserve(None)? {
        match send(&job.body) {
            Ok(()) => queue.delete(job.id)?,
            Err(reason) => drop(queue.fail(job.id, 65536, reason.as_bytes())?),
        }
    }
    Ok(())
}
