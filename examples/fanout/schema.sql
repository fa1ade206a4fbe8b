-- One entry for each version. A permanently deleted version keeps its entry, so that a late creation cannot bring it back.
CREATE TABLE archive (
  key        text    NOT NULL,
  version_id text    NOT NULL,
  sha256     text,
  deleted    boolean NOT NULL DEFAULT false,
  PRIMARY KEY (key, version_id)
);

-- The latest text of each object, with its words.
CREATE TABLE documents (
  key        text PRIMARY KEY,
  version_id text NOT NULL,
  body       text NOT NULL,
  words      tsvector GENERATED ALWAYS AS (to_tsvector('simple', body)) STORED
);
CREATE INDEX documents_words ON documents USING gin (words);

-- The workers that were killed.
CREATE TABLE kills (
  worker text,
  key    text,
  PRIMARY KEY (worker, key)
);
