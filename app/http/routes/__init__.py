"""The map of the API: one module a resource. Each handler names its permission and the views that it reads."""
