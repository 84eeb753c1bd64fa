//! A server on loopback that says exactly the bytes it is told to, for the failures that no real server shows on demand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What the server does next.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// Writes these bytes at once.
    Bytes(Vec<u8>),
    /// Waits.
    Wait(Duration),
}

/// A running server; it stops with the test's runtime.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Base URL.
    pub(crate) url: String,
    /// Requests so far, head and body.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

/// Answers every connection with the pieces and closes it.
pub(crate) async fn raw(pieces: Vec<Piece>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (pieces, log) = (pieces.clone(), Arc::clone(&log));
            tokio::spawn(async move {
                let _ = answer(stream, pieces, &log).await;
            });
        }
    });
    Server { url, requests }
}

async fn answer(mut stream: TcpStream, pieces: Vec<Piece>, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !complete(&request) {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..n]);
    }
    log.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
            Piece::Wait(time) => tokio::time::sleep(time).await,
        }
    }
    stream.shutdown().await
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

/// A response of this status that ends when the connection closes.
pub(crate) fn response(status: &str, kind: &str, body: &str) -> Vec<Piece> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
    vec![Piece::Bytes(head.into_bytes()), Piece::Bytes(body.as_bytes().to_vec())]
}

/// An event stream written piece by piece, each in a packet of its own.
pub(crate) fn stream(parts: &[&[u8]]) -> Vec<Piece> {
    let mut pieces = response("200 OK", "text/event-stream", "");
    for part in parts {
        pieces.push(Piece::Bytes(part.to_vec()));
        pieces.push(Piece::Wait(Duration::from_millis(3)));
    }
    pieces
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
