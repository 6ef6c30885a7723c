-- Jobs that are committed in the same transaction as the data they belong to. relay.py moves the jobs to the queue.
CREATE TABLE outbox (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Identifies the job permanently. Numbers from a sequence could be reused after a restore from a backup.
    key uuid NOT NULL DEFAULT gen_random_uuid(),
    tube text NOT NULL,
    body text NOT NULL
);

CREATE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY outbox;
    RETURN NULL;
END $$;

CREATE TRIGGER outbox_notify AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();
