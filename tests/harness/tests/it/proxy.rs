//! A cable that is cut, silent, and whole again.

use std::time::Duration;

use berth_harness::proxy::Proxy;
use berth_harness::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A proxy in front of a server that echoes every byte.
async fn echo() -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Proxy::start(target).await
}

async fn echoes(stream: &mut TcpStream, byte: u8) {
    stream.write_all(&[byte]).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), byte);
}

#[tokio::test]
async fn a_silent_cable_holds_bytes_back_and_gives_them_later() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;

    proxy.half_open();
    stream.write_all(&[2]).await.unwrap();
    let silence = timeout(Duration::from_millis(200), stream.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    proxy.heal();
    assert_eq!(stream.read_u8().await.unwrap(), 2);
    echoes(&mut stream, 3).await;
}

#[tokio::test]
async fn a_cut_cable_breaks_connections_until_healed() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;

    proxy.cut();
    assert!(stream.read_u8().await.is_err());
    if let Ok(mut new) = TcpStream::connect(proxy.address()).await {
        assert!(new.read_u8().await.is_err());
    }

    proxy.heal();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 2).await;
}

#[tokio::test]
async fn a_dropped_proxy_leaves_no_connection() {
    let proxy = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoes(&mut stream, 1).await;
    let address = proxy.address();
    drop(proxy);
    assert!(stream.read_u8().await.is_err());
    wait::until("nobody listens", Duration::from_secs(5), async || {
        match TcpStream::connect(address).await {
            Ok(_) => Err("connected"),
            Err(_) => Ok(()),
        }
    })
    .await;
}
