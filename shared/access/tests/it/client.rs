//! A client of NATS over TLS, from the protocol: it signs the server's nonce with a `.creds` file.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth_access::creds::{UserCreds, inbox_prefix};
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

/// Longest wait for the server's next line.
const PATIENCE: Duration = Duration::from_secs(20);

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connection that the server has accepted.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<Tls>,
    inbox: String,
}

/// The address and the identity of a connection, and what it trusts.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'a> {
    /// The port on loopback.
    pub port: u16,
    /// The name that the certificate must be for.
    pub name: &'a str,
    /// The trusted authorities.
    pub ca: &'a Path,
    /// The identity.
    pub creds: Option<&'a Path>,
    /// A token to show instead of the identity's.
    pub token: Option<&'a str>,
}

fn open(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Reads the line that the server sends first, byte by byte: TLS begins right after it.
fn read_info(stream: &mut TcpStream) -> std::io::Result<Value> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    let line = String::from_utf8_lossy(&line);
    Ok(serde_json::from_str(line.trim_start_matches("INFO ").trim())?)
}

/// Sends CONNECT without TLS. Returns the server's answer.
pub fn connect_in_clear(port: u16) -> String {
    let mut stream = open(port).unwrap();
    read_info(&mut stream).unwrap();
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap();
    let mut answer = String::new();
    // The server may end the connection without another word.
    let _ = BufReader::new(stream).read_line(&mut answer);
    answer
}

impl Client {
    /// Connects. The error is that of TLS or of the server.
    pub fn connect(dial: Dial<'_>) -> Result<Self, String> {
        let mut stream = open(dial.port).map_err(|error| error.to_string())?;
        let info = read_info(&mut stream).map_err(|error| error.to_string())?;
        assert_eq!(info["tls_required"], json!(true), "{info}");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(dial.ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from(dial.name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut options = json!({ "verbose": false, "tls_required": true, "headers": true });
        let mut inbox = "_INBOX.nobody".to_owned();
        if let Some(path) = dial.creds {
            let text = fs::read_to_string(path).unwrap();
            let creds = UserCreds::parse(&text).unwrap();
            let nonce = info["nonce"].as_str().unwrap();
            let signature = creds.key.sign(nonce.as_bytes()).unwrap();
            options["jwt"] = json!(dial.token.unwrap_or_else(|| text.lines().nth(1).unwrap()));
            options["sig"] = json!(BASE64URL_NOPAD.encode(&signature));
            inbox = inbox_prefix(&creds.claims.subject);
        }
        let opening = format!("CONNECT {options}\r\nPING\r\n");
        stream.write_all(opening.as_bytes()).map_err(|error| error.to_string())?;
        let mut client = Self { stream: BufReader::new(stream), inbox };
        loop {
            let line = client.read_line()?;
            match line.as_str() {
                "PONG" => return Ok(client),
                error if error.starts_with("-ERR") => return Err(error.to_owned()),
                _ => {}
            }
        }
    }

    /// The certificate that the server showed.
    pub fn server_certificate(&self) -> Vec<u8> {
        self.stream.get_ref().conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Sends a request, and reads the answer as JSON.
    pub fn request(&mut self, subject: &str, body: &Value) -> Value {
        let (inbox, body) = (format!("{}.1", self.inbox), body.to_string());
        let ask = format!(
            "SUB {inbox} 1\r\nUNSUB 1 1\r\nPUB {subject} {inbox} {}\r\n{body}\r\n",
            body.len()
        );
        self.stream.get_mut().write_all(ask.as_bytes()).unwrap();
        loop {
            let line = self.read_line().unwrap();
            assert!(!line.starts_with("-ERR"), "{line}");
            if line.starts_with("MSG ") || line.starts_with("HMSG ") {
                assert!(line.starts_with("MSG "), "nobody answers {subject}: {line}");
                let size = line.rsplit(' ').next().unwrap().parse().unwrap();
                let mut body = vec![0; size];
                self.stream.read_exact(&mut body).unwrap();
                return serde_json::from_slice(&body).unwrap();
            }
        }
    }

    /// Sends lines of the protocol. Returns the server's lines until it has processed them all.
    pub fn exchange(&mut self, lines: &str) -> Vec<String> {
        let lines = format!("{lines}PING\r\n");
        self.stream.get_mut().write_all(lines.as_bytes()).unwrap();
        let mut lines_read = Vec::new();
        loop {
            match self.read_line().unwrap().as_str() {
                "PONG" => return lines_read,
                line => lines_read.push(line.to_owned()),
            }
        }
    }

    /// The prefix of the identity's inboxes.
    pub fn inbox(&self) -> &str {
        &self.inbox
    }

    /// Whether the server still answers on this connection.
    pub fn answers(&mut self) -> bool {
        if self.stream.get_mut().write_all(b"PING\r\n").is_err() {
            return false;
        }
        loop {
            match self.read_line().as_deref() {
                Ok("PONG") => return true,
                Ok(line) if line.starts_with("-ERR") => return false,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Reads until the server has ended the connection. Returns the server's reason.
    pub fn read_to_end(&mut self) -> String {
        let mut reason = String::new();
        while let Ok(line) = self.read_line() {
            if line.starts_with("-ERR") {
                reason = line;
            }
        }
        reason
    }

    fn read_line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => return Err("the server has closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        if line.starts_with("PING") {
            let pong = self.stream.get_mut().write_all(b"PONG\r\n");
            pong.map_err(|error| error.to_string())?;
        }
        Ok(line.trim_end().to_owned())
    }
}
