"""What people look at: pictures, tables and pages about a space."""
