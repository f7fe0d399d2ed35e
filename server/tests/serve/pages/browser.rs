//! A browser without scripts.

use std::sync::Mutex;

use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;
use reqwest::{Client, Method, StatusCode};
use url::form_urlencoded::Serializer;

use crate::server::Server;

/// Asks for pages and sends forms, with the cookie that it was last given; it does not go where it is sent.
pub(super) struct Browser {
    client: Client,
    url: String,
    cookie: Mutex<Option<String>>,
}

/// What it was given.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Browser {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            client: Client::builder().redirect(Policy::none()).build().unwrap(),
            url: server.url.clone(),
            cookie: Mutex::default(),
        }
    }

    /// The same browser, at another server.
    pub(super) fn at(self, server: &Server) -> Self {
        Self {
            url: server.url.clone(),
            ..self
        }
    }

    pub(super) async fn get(&self, path: &str) -> Page {
        self.send(Method::GET, path, &[], &[]).await
    }

    /// Sends a form as one of our pages has it.
    pub(super) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let csrf = self.csrf().await;
        let fields = [fields, &[("csrf", &csrf)]].concat();
        self.send(Method::POST, path, &fields, &[("sec-fetch-site", "same-origin")])
            .await
    }

    /// What the forms of its session have in them.
    pub(super) async fn csrf(&self) -> String {
        let mut page = self.get("/kinds").await;
        if page.status == StatusCode::SEE_OTHER {
            page = self.get("/sign-in").await;
        }
        let field = page.text.split_once(r#"name="csrf" value=""#).unwrap().1;
        field.split_once('"').unwrap().0.to_owned()
    }

    pub(super) fn cookie(&self) -> Option<String> {
        self.cookie.lock().unwrap().clone()
    }

    pub(super) fn set_cookie(&self, cookie: Option<String>) {
        *self.cookie.lock().unwrap() = cookie;
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&'static str, &str)],
    ) -> Page {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.url));
        if method == Method::POST {
            let body = Serializer::new(String::new()).extend_pairs(fields).finish();
            request = request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(body);
        }
        if let Some(cookie) = self.cookie() {
            request = request.header("cookie", cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        if let Some(cookie) = response.headers().get("set-cookie") {
            let cookie = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
            self.set_cookie(Some(cookie));
        }
        Page {
            status: response.status(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }
}

/// The text that stands for itself in an attribute.
fn plain(text: &str) -> String {
    let marks = [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ];
    let text = text.to_owned();
    marks
        .into_iter()
        .fold(text, |text, (mark, plain)| text.replace(mark, plain))
}

/// A search of these fields.
pub(super) fn search(fields: &[(String, String)]) -> String {
    Serializer::new(String::new()).extend_pairs(fields).finish()
}

impl Page {
    /// Where it sends the browser.
    #[track_caller]
    pub(super) fn location(&self) -> &str {
        let location = self.headers.get("location");
        location
            .unwrap_or_else(|| panic!("it stays: {self:?}"))
            .to_str()
            .unwrap()
    }

    /// The fields of the first form that is sent to a path, its own values as they are.
    #[track_caller]
    pub(super) fn form(&self, path: &str) -> Vec<(String, String)> {
        let form = self.text.split_once(&format!("action=\"{path}\""));
        let form = form
            .unwrap_or_else(|| panic!("there is no such form: {}", self.text))
            .1;
        let form = form.split("</form>").next().unwrap();
        let hidden = form.split(r#"<input type="hidden" name=""#).skip(1);
        let field = |field: &str| {
            let (name, rest) = field.split_once(r#"" value=""#).unwrap();
            (name.to_owned(), plain(rest.split('"').next().unwrap()))
        };
        hidden.map(field).collect()
    }

    #[track_caller]
    pub(super) fn says(&self, text: &str) {
        assert!(
            self.text.contains(text),
            "it does not say {text:?}: {}",
            self.text
        );
    }

    #[track_caller]
    pub(super) fn does_not_say(&self, text: &str) {
        assert!(!self.text.contains(text), "it says {text:?}: {}", self.text);
    }

    /// The values of all attributes of a name.
    pub(super) fn attributes(&self, name: &str) -> impl Iterator<Item = &str> {
        let before = format!(" {name}=\"");
        let places = self.text.match_indices(&before);
        let places: Vec<_> = places.map(|(at, before)| at + before.len()).collect();
        let value = |at: usize| self.text[at..].split('"').next().unwrap();
        places.into_iter().map(value)
    }
}
