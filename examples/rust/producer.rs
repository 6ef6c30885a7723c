//! Puts a mail into the queue, once per key: `cargo run --example producer welcome-7 alice@example.org`

use std::env;
use std::error::Error;

use beanpole::{Client, PutTags};

fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("BEANPOLE_SERVER").unwrap_or_else(|_| "127.0.0.1:11300".to_owned());
    let [key, body] = env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "expected a key and a body")?;
    let mut queue = Client::connect(address)?;
    // beanstalkd, which has no extensions, executes the body of a job with tags as commands.
    if !queue.extensions()?.contains(&"idp".to_owned()) {
        return Err("the server lacks the extension idp".into());
    }
    queue.use_tube("mail")?;
    let tags = PutTags::default().with(|tags| tags.unique = Some((key, 3600)));
    println!("{}", queue.put_tagged(body.as_bytes(), 65536, 0, 60, &tags)?.id());
    Ok(())
}
