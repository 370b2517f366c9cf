"""Who is compared: a module each, with ``build(spec)``, imported only in that one's process."""
