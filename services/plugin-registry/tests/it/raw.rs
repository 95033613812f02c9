//! A question in bare NATS protocol: bytes and headers that no client of ours would send.

use berth_harness::nats::Server;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::site::PATIENCE;

/// Asks, and reads the answer as JSON.
pub async fn ask(server: &Server, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let answer = timeout(PATIENCE, exchange(server, subject, headers, body)).await;
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

async fn exchange(
    server: &Server,
    subject: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Vec<u8> {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    let mut stream = BufReader::new(stream);
    let lines: String = headers.iter().flat_map(|(n, value)| [n, ": ", value, "\r\n"]).collect();
    let head = format!("NATS/1.0\r\n{lines}\r\n");
    let (head_len, len) = (head.len(), head.len() + body.len());
    let connect = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
    let opening = format!(
        "CONNECT {connect}\r\nSUB _INBOX.raw 1\r\nHPUB {subject} _INBOX.raw {head_len} {len}\r\n"
    );
    let all = [opening.as_bytes(), head.as_bytes(), body, b"\r\n"].concat();
    stream.get_mut().write_all(&all).await.unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (head, whole): (usize, usize) = match words.as_slice() {
            ["MSG", .., whole] => (0, whole.parse().unwrap()),
            ["HMSG", .., head, whole] => (head.parse().unwrap(), whole.parse().unwrap()),
            ["PING"] => {
                stream.get_mut().write_all(b"PONG\r\n").await.unwrap();
                continue;
            }
            ["-ERR", ..] | [] => panic!("{line:?}"),
            _ => continue,
        };
        let mut answer = vec![0; whole];
        stream.read_exact(&mut answer).await.unwrap();
        return answer.split_off(head);
    }
}
