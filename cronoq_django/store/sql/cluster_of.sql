-- Where a connection leads to. No schema: the search_path finds no cluster.
SELECT (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('cronoq_leader')),
       current_database(), (SELECT system_identifier FROM pg_control_system())
