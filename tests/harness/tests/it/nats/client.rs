//! One request over a plain socket: to the server's client port, or to its monitor.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use berth_harness::nats::Server;

/// Sends a request, and returns the reply's body.
pub(crate) fn ask(server: &Server, subject: &str, body: &str) -> String {
    ask_port(server.port(), subject, body)
}

pub(crate) fn ask_port(port: u16, subject: &str, body: &str) -> String {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let request = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB in 1\r\nPUB {subject} in {}\r\n{body}\r\n",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "connection closed");
        if let Some(words) = line.strip_prefix("MSG ") {
            let size = words.split_whitespace().last().unwrap().parse().unwrap();
            let mut reply = vec![0; size];
            stream.read_exact(&mut reply).unwrap();
            return String::from_utf8(reply).unwrap();
        }
    }
}

/// The answer of the monitor.
pub(crate) fn http_get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
