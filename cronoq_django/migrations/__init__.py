"""The schema. SQL that Django has no words for stands in .sql files beside the migrations."""
