//! A handler that inserts batches into PostgreSQL. The bench starts a server with its own cluster on
//! loopback, and removes both at its end. A batch is one INSERT of many rows. The server commits and syncs
//! the batch before it answers.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{AsyncWork, Item, Pending};
use crate::postgres::{DATABASE, PATIENCE, Server, USER};
use crate::rounds::Failure;

/// The statement that creates the table. A row has 1 KB and three indexes, one of them over random texts, so
/// that a row costs more than its caller.
const TABLE: &str =
    "CREATE TABLE item (id int8 PRIMARY KEY, key int4 NOT NULL, text text NOT NULL);
    CREATE INDEX ON item (key, id);
    CREATE UNIQUE INDEX ON item (md5(id::text))";
/// The statement that inserts a batch. It takes the rows as two arrays, so that one prepared statement serves
/// batches of any size.
const INSERT: &str = "INSERT INTO item (id, key, text)
    SELECT id, key, repeat(md5(id::text), 32) FROM unnest($1::int8[], $2::int4[]) AS row (id, key)";

/// The handler that inserts each batch into PostgreSQL by one statement.
pub(super) struct Postgres {
    config: Config,
    idle: Mutex<Vec<Connection>>,
    /// The PostgreSQL server. This field is the last one, so that the connections drop first.
    _server: Server,
}

struct Connection {
    client: Client,
    insert: Statement,
}

impl Postgres {
    pub(super) fn start(runtime: &Runtime, directory: &Path) -> anyhow::Result<Self> {
        let server = Server::start(directory)?;
        let config = config(&server);
        let postgres = Self {
            config,
            idle: Mutex::new(Vec::new()),
            _server: server,
        };
        runtime.block_on(async {
            let client = postgres.come_up().await?;
            client
                .batch_execute(TABLE)
                .await
                .context("creating the table")
        })?;
        Ok(postgres)
    }

    /// Connects to PostgreSQL, as soon as the starting server accepts the connection.
    async fn come_up(&self) -> anyhow::Result<Client> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.connect().await {
                Ok(client) => return Ok(client),
                Err(e) if Instant::now() > until || tidegate_cli::interrupt::asked() => {
                    return Err(e).context(format!(
                        "PostgreSQL does not come up{}",
                        self._server.said()
                    ));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        // If this connection ends, the next statement on it reports the error, so this task ignores the
        // error.
        tokio::spawn(connection);
        Ok(client)
    }

    async fn connection(&self) -> Result<Connection, tokio_postgres::Error> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match idle {
            Some(connection) => Ok(connection),
            None => {
                let client = self.connect().await?;
                let insert = client.prepare(INSERT).await?;
                Ok(Connection { client, insert })
            }
        }
    }

    async fn insert(&self, items: &[Item]) -> Result<u64, tokio_postgres::Error> {
        let connection = self.connection().await?;
        let ids: Vec<i64> = items.iter().map(|item| item.id.cast_signed()).collect();
        let keys: Vec<i32> = items.iter().map(|item| item.key.cast_signed()).collect();
        let Connection { client, insert } = &connection;
        let rows = client.execute(insert, &[&ids, &keys]).await?;
        self.give_back(connection);
        Ok(rows)
    }

    async fn ask(&self, sql: &str) -> Result<Option<i64>, tokio_postgres::Error> {
        let connection = self.connection().await?;
        let rows = connection.client.query(sql, &[]).await?;
        self.give_back(connection);
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
    }
}

impl AsyncWork for Postgres {
    fn empty(&self) -> Pending<'_, ()> {
        Box::pin(async { self.ask("TRUNCATE item").await.map(|_| ()).map_err(said) })
    }

    fn handle<'a>(&'a self, items: &'a [Item]) -> Pending<'a, ()> {
        Box::pin(async move {
            let rows = self.insert(items).await.map_err(said)?;
            let expected = items.len() as u64;
            if rows == expected {
                Ok(())
            } else {
                Err(format!("PostgreSQL inserted {rows} of {expected} rows"))
            }
        })
    }

    fn stored(&self) -> Pending<'_, u64> {
        Box::pin(async {
            let count = self.ask("SELECT count(*) FROM item").await.map_err(said)?;
            Ok(count.map_or(0, i64::cast_unsigned))
        })
    }
}

/// Formats an error of PostgreSQL with the server's message, which names the cause.
fn said(error: tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(words) => format!("PostgreSQL: {}", words.message()),
        None => format!("PostgreSQL: {error}"),
    }
}

fn config(server: &Server) -> Config {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(server.port())
        .user(USER)
        .password(server.password())
        .dbname(DATABASE);
    config
}
